package facts

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
)

// epoch is a row.
type epoch struct {
	News notifier.News             `json:"news"` // as it was told when it opened
	Told map[uint32]notifier.Stage `json:"told,omitempty"`
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
	if err := a.everybody(w, &notifier.Command{News: &row.News}); err != nil {
		return err
	}
	return putEpoch(w, &row)
}

// reserved sends news when a budget reaches 90 % or 100 %, once each: returned amounts may be reserved again.
func (a *App) reserved(w state.Writer, at uint64, e *contracts.EpochReserved) error {
	stored, err := w.Get(epochs, epochKey(e.N))
	if err != nil || stored == nil {
		return err
	}
	var row epoch
	if err := json.Unmarshal(stored, &row); err != nil {
		return fmt.Errorf("row of epoch %d: %w", e.N, err)
	}
	term, budget := uint32(contracts.LongTerm), row.News.Budget21
	if e.Term == contracts.ShortTerm {
		term, budget = contracts.ShortTerm, row.News.Budget7
	}
	stage := reached(&e.ReservedAfter, budget)
	if stage <= row.Told[term] {
		return nil
	}
	if row.Told == nil {
		row.Told = map[uint32]notifier.Stage{}
	}
	row.Told[term] = stage
	told := row.News
	told.Stage, told.Term, told.At, told.Reserved = stage, term, at, e.ReservedAfter.Dec()
	if err := a.everybody(w, &notifier.Command{News: &told}); err != nil {
		return err
	}
	return putEpoch(w, &row)
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
