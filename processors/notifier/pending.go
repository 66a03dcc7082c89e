package notifier

import (
	"encoding/json"
	"slices"

	"github.com/lienstream/lienstream/processors/engine/state"
)

// Pending returns an alert of the outbox with the present state of the chain, and its subscription. found is false if
// there is nothing to send, for now or for good.
func Pending(r state.View, row []byte) (a Alert, s Subscription, found bool, err error) {
	to, ok := ParseRow(row)
	if !ok {
		return a, s, false, nil
	}
	is, err := r.Get(outbox, row)
	if err != nil || is == nil {
		return a, s, false, err
	}
	if err := json.Unmarshal(is, &a); err != nil || !a.pends() {
		return a, s, false, err
	}
	if known, err := a.update(r, to); err != nil || !known {
		return a, s, false, err
	}
	if q := a.Request; q != nil {
		s = Subscription{Channel: to.Channel, Sealed: q.Sealed, CreatedAt: int64(a.Due), ConfirmBy: int64(a.Due) + confirmSeconds}
		return a, s, true, nil
	}
	s, err = getSubscription(r, to.Wallet, to.Channel)
	open := s.Disabled == "" && s.Prefs.Has(to.Stage.Kind())
	if to.Stage == ToConfirm {
		s = s.Named()
		open = s.ConfirmBy != 0
	}
	return a, s, err == nil && s.Active() && open, err
}

// update replaces the facts by which the alert was fired by the present ones: a reorg may have changed them. It reports
// whether the alert is still true.
func (a *Alert) update(r rowReader, to Address) (bool, error) {
	if to.Stage == ToConfirm {
		return true, nil
	}
	if to.Stage.OfNews() {
		return a.updateNews(r)
	}
	var d openDeal
	if err := getRow(r, dealsOf, slices.Concat(to.Wallet[:], to.Subject[:]), &d); err != nil {
		return false, err
	}
	if !d.Deal.Open || to.Stage.due(&d.Deal) != a.Due {
		return false, nil
	}
	a.Deal = &d.Deal
	var err error
	a.Collateral, err = getAsset(r, d.Deal.Token)
	return true, err
}

func (a *Alert) updateNews(r rowReader) (bool, error) {
	if a.News == nil {
		return false, nil
	}
	var row newsRow
	if err := getRow(r, news, newsKey(a.News), &row); err != nil {
		return false, err
	}
	a.Obsolete = row.Ended || row.News.Stage == 0 // no row: the news were dropped for their age
	if a.Obsolete || !row.holds() {               // what is retracted may come again
		return false, nil
	}
	a.News = &row.News
	if row.News.Stage != Budget90 {
		return true, nil
	}
	var all newsRow // of the same budget
	most := row.News
	most.Stage = Budget100
	err := getRow(r, news, newsKey(&most), &all)
	return !all.announced(), err
}
