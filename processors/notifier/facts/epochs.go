package facts

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
)

// epoch is a row.
type epoch struct {
	News    notifier.News             `json:"news"`              // as sent when it opened
	Budgets []notifier.News           `json:"budgets,omitempty"` // the news of its budgets that hold, as sent
	Told    map[uint32]notifier.Stage `json:"told,omitempty"`    // written by older builds instead of Budgets: the last stage of each
}

func epochKey(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

func (a *App) opened(w state.Writer, at uint64, e *contracts.EpochOpened) error {
	if was, err := w.Get(epochs, epochKey(e.N)); err != nil || was != nil {
		return err
	}
	row := epoch{News: notifier.News{
		Stage: notifier.EpochOpen, Epoch: e.N, At: at, StartsAt: e.StartsAt, EndsAt: e.EndsAt,
		Budget7: e.DealBudget7.Dec(), Budget21: e.DealBudget21.Dec(),
	}}
	if err := a.toAll(w, &notifier.Command{News: &row.News}); err != nil {
		return err
	}
	return putEpoch(w, &row)
}

// budgetStages are the stages of a budget.
var budgetStages = []notifier.Stage{notifier.Budget90, notifier.Budget100}

// reserved sends news when a budget reaches 90 % or 100 %, and retracts them when amounts are returned: a deal that is
// funded and ended at once reserves nothing in the end.
func (a *App) reserved(w state.Writer, at uint64, n, term uint32, reserved *uint256.Int) error {
	stored, err := w.Get(epochs, epochKey(n))
	if err != nil || stored == nil {
		return err
	}
	var row epoch
	if err := json.Unmarshal(stored, &row); err != nil {
		return fmt.Errorf("row of epoch %d: %w", n, err)
	}
	budget := row.News.Budget7
	if term != contracts.ShortTerm {
		term, budget = contracts.LongTerm, row.News.Budget21
	}
	now := reached(reserved, budget)
	for _, stage := range budgetStages {
		told := row.News
		told.Stage, told.Term, told.At, told.Reserved = stage, term, at, reserved.Dec()
		if stage <= row.Told[term] { // the row lacks the amount reserved then
			former := told
			former.Reserved = budget
			row.Budgets = append(row.Budgets, former)
		}
		i := slices.IndexFunc(row.Budgets, func(b notifier.News) bool { return b.Stage == stage && b.Term == term })
		is, was := stage <= now, i >= 0
		if was && (!is || reachedBy(&row.Budgets[i], budget) > now) { // or they report more than is reserved
			if err := a.toAll(w, &notifier.Command{Returned: &row.Budgets[i]}); err != nil {
				return err
			}
			row.Budgets, was = slices.Delete(row.Budgets, i, i+1), false
		}
		if is && !was {
			row.Budgets = append(row.Budgets, told)
			if err := a.toAll(w, &notifier.Command{News: &told}); err != nil {
				return err
			}
		}
	}
	delete(row.Told, term)
	return putEpoch(w, &row)
}

// reachedBy is the stage that a budget has reached according to news.
func reachedBy(n *notifier.News, budget string) notifier.Stage {
	reserved, err := uint256.FromDecimal(n.Reserved)
	if err != nil {
		return 0
	}
	return reached(reserved, budget)
}

// reached is the stage that a budget has reached; 0: none.
func reached(reserved *uint256.Int, budget string) notifier.Stage {
	whole, err := uint256.FromDecimal(budget)
	if err != nil || whole.IsZero() {
		return 0
	}
	rest := new(uint256.Int)
	switch _, under := rest.SubOverflow(whole, reserved); {
	case under || rest.IsZero():
		return notifier.Budget100
	case !rest.Gt(whole.Div(whole, uint256.NewInt(10))):
		return notifier.Budget90
	}
	return 0
}

func putEpoch(w state.Writer, e *epoch) error {
	row, err := json.Marshal(e)
	if err == nil {
		w.Put(epochs, epochKey(e.News.Epoch), row)
	}
	return err
}
