package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
)

// longestList is how long a page is at the most.
const longestList = 200

// market is what /stream tells of, as of a block. It is made of one node's answers.
type market struct {
	deals       map[string]*deal // by ID
	listed      map[string]bool  // those of them that /listings has
	pool, epoch string
}

// deal is a deal with its bids, as JSON.
type deal struct {
	text    string // as lists have it
	lasting string // without what changes with time alone: no event tells that a bid has expired
	bids    string
}

// keepMarket notes the market of the answers as of a block.
func (o *oracle) keepMarket(block string) error {
	m := &market{deals: map[string]*deal{}, listed: map[string]bool{}}
	answers := o.answers[block]
	for _, id := range o.ids {
		a := answers["/deals/"+id]
		if a.status != http.StatusOK {
			continue
		}
		var err error
		if m.deals[id], err = o.dealOf(a.body); err != nil {
			return fmt.Errorf("deal %s: %w", id, err)
		}
	}
	var list struct {
		Items []struct{ ID string }
		Next  *string `json:"nextCursor"`
	}
	if err := json.Unmarshal([]byte(answers["/listings?limit=200&sort=newest"].body), &list); err != nil {
		return fmt.Errorf("listings: %w", err)
	}
	if list.Next != nil {
		return fmt.Errorf("there are more than %d listings", longestList)
	}
	for _, d := range list.Items {
		m.listed[d.ID] = true
	}
	m.pool = answers["/pool"].body
	var pool struct{ Epoch json.RawMessage }
	if err := json.Unmarshal([]byte(m.pool), &pool); err != nil {
		return fmt.Errorf("pool: %w", err)
	}
	m.epoch = fmt.Sprintf(`{"epoch":%s}`, pool.Epoch)
	o.markets[block] = m
	return nil
}

// dealOf is what an answer says of a deal. Most deals are those of the block before, and each is kept once.
func (o *oracle) dealOf(answer string) (*deal, error) {
	var of struct{ Deal, Bids json.RawMessage }
	if err := json.Unmarshal([]byte(answer), &of); err != nil {
		return nil, err
	}
	key := string(of.Deal) + string(of.Bids)
	if d := o.deals[key]; d != nil {
		return d, nil
	}
	lasting, err := lasting(of.Deal)
	d := &deal{key[:len(of.Deal)], lasting, key[len(of.Deal):]}
	o.deals[key] = d
	return d, err
}

// lasting is a deal's text without what changes with time alone.
func lasting(text []byte) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return "", err
	}
	delete(fields, "openBidCount")
	delete(fields, "bestBid")
	rest, err := json.Marshal(fields)
	return string(rest), err
}

// changed are the deals of which a stream must tell between two blocks: those that changed by a row or by a bid, and those
// whose listing ended.
func (m *market) changed(since *market) map[string]bool {
	ids := map[string]bool{}
	for id, d := range m.deals {
		was := since.deals[id]
		if was == nil || was != d && (was.lasting != d.lasting || was.bids != d.bids) || since.listed[id] != m.listed[id] {
			ids[id] = true
		}
	}
	for id := range since.deals { // blocks that were reverted
		if m.deals[id] == nil {
			ids[id] = true
		}
	}
	return ids
}

// told is what a stream has told; an empty text: nothing of that.
type told struct {
	deals       map[string]string // by ID
	listed      map[string]bool
	pool, epoch string
}

func newTold() told { return told{deals: map[string]string{}, listed: map[string]bool{}} }

// add adds what was told later.
func (t *told) add(later told) {
	maps.Copy(t.deals, later.deals)
	maps.Copy(t.listed, later.listed)
	if later.pool != "" {
		t.pool = later.pool
	}
	if later.epoch != "" {
		t.epoch = later.epoch
	}
}

// differs names something told with a block that is not so as of it; empty: there is nothing.
func (t *told) differs(m *market) string {
	for id, text := range t.deals {
		want := "null"
		if d := m.deals[id]; d != nil {
			want = d.text
		}
		if text != want {
			return "deal " + id + ": " + difference(want, text)
		}
		if listed, is := t.listed[id]; !is || listed != m.listed[id] {
			return fmt.Sprintf("deal %s is said to be listed: %v, want %v", id, listed, m.listed[id])
		}
	}
	if t.pool != "" && t.pool != m.pool {
		return "pool: " + difference(m.pool, t.pool)
	}
	if t.epoch != "" && t.epoch != m.epoch {
		return "epoch: " + difference(m.epoch, t.epoch)
	}
	return ""
}

// lacks names something that changed since a block, and that was not told, or not as it is in the end; empty: there is nothing.
func (t *told) lacks(since, m *market) string {
	for id := range m.changed(since) {
		if _, is := t.deals[id]; !is {
			return "deal " + id + " is not told"
		}
	}
	for id, text := range t.deals {
		last, err := lasting([]byte(text))
		d := m.deals[id]
		switch {
		case err != nil:
			return fmt.Sprintf("deal %s: %v", id, err)
		case d == nil && text != "null":
			return "deal " + id + " is not there"
		case d != nil && last != d.lasting:
			return "deal " + id + ": " + difference(d.lasting, last)
		case t.listed[id] != m.listed[id]:
			return fmt.Sprintf("deal %s was last said to be listed: %v", id, t.listed[id])
		}
	}
	if pool := cmp.Or(t.pool, since.pool); pool != m.pool {
		return "pool: " + difference(m.pool, pool)
	}
	if epoch := cmp.Or(t.epoch, since.epoch); epoch != m.epoch {
		return "epoch: " + difference(m.epoch, epoch)
	}
	return ""
}
