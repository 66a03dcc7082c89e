package simulation

import (
	"maps"
	"net/http"
	"strings"
	"testing"
)

// marketOf is the market of answers: what /deals/{id} says by ID, the IDs that /listings has, and the pool's tick.
func marketOf(t *testing.T, o *oracle, block string, deals map[string]string, listed, tick string) *market {
	t.Helper()
	at := map[string]reply{
		"/pool":                           {status: http.StatusOK, body: `{"tick":` + tick + `,"epoch":{"n":` + tick + `}}`},
		"/listings?limit=200&sort=newest": {status: http.StatusOK, body: `{"items":[` + listed + `],"nextCursor":null}`},
	}
	for id, body := range deals {
		at["/deals/"+id] = reply{status: http.StatusOK, body: body}
	}
	o.answers[block] = at
	if err := o.keepMarket(block); err != nil {
		t.Fatal(err)
	}
	return o.markets[block]
}

// What a stream tells between two blocks is right, or it is found to differ or to lack something: of each kind of events.
func TestWhatAStreamTellsIsJudged(t *testing.T) {
	o := &oracle{ids: []string{"1", "2", "3", "4"}, answers: map[string]map[string]reply{}, deals: map[string]*deal{}, markets: map[string]*market{}}
	was := marketOf(t, o, "was", map[string]string{
		"1": `{"deal":{"id":"1","bestBid":null},"bids":[]}`,
		"2": `{"deal":{"id":"2","bestBid":{"id":"7"}},"bids":[{"id":"7"}]}`,
		"3": `{"deal":{"id":"3"},"bids":[]}`,
		"4": `{"deal":{"id":"4"},"bids":[]}`,
	}, `{"id":"1"},{"id":"2"},{"id":"3"}`, "1")
	now := marketOf(t, o, "now", map[string]string{ // 1 has a bid, that of 2 has expired, 3's listing has ended, and 4 was reverted
		"1": `{"deal":{"id":"1","bestBid":{"id":"8"}},"bids":[{"id":"8"}]}`,
		"2": `{"deal":{"id":"2","bestBid":null},"bids":[{"id":"7"}]}`,
		"3": `{"deal":{"id":"3"},"bids":[]}`,
	}, `{"id":"1"},{"id":"2"}`, "2")
	right := func() told {
		return told{
			deals:  map[string]string{"1": `{"id":"1","bestBid":{"id":"8"}}`, "3": `{"id":"3"}`, "4": "null"},
			listed: map[string]bool{"1": true, "3": false, "4": false},
			pool:   `{"tick":2,"epoch":{"n":2}}`, epoch: `{"epoch":{"n":2}}`,
		}
	}
	for name, c := range map[string]struct {
		change         func(*told)
		differs, lacks string // in what is found; empty: nothing is
	}{
		"right":                        {func(*told) {}, "", ""},
		"more than it must":            {func(s *told) { s.deals["2"], s.listed["2"] = `{"id":"2","bestBid":null}`, true }, "", ""},
		"no deal with a new bid":       {func(s *told) { delete(s.deals, "1") }, "", "deal 1 is not told"},
		"no deal whose listing ended":  {func(s *told) { delete(s.deals, "3") }, "", "deal 3 is not told"},
		"no deal that was reverted":    {func(s *told) { delete(s.deals, "4") }, "", "deal 4 is not told"},
		"a deal as it was":             {func(s *told) { s.deals["1"] = was.deals["1"].text }, "deal 1: ", ""},
		"a deal that is not there":     {func(s *told) { s.deals["4"] = was.deals["4"].text }, "deal 4: ", "deal 4 is not there"},
		"a deal that is there as gone": {func(s *told) { s.deals["1"] = "null" }, "deal 1: ", "deal 1: "},
		"listed the other way":         {func(s *told) { s.listed["3"] = true }, "deal 3 is said to be listed: true", "deal 3 was last said to be listed: true"},
		"no listing":                   {func(s *told) { delete(s.listed, "1") }, "deal 1 is said to be listed: false", "deal 1 was last said to be listed: false"},
		"no pool":                      {func(s *told) { s.pool = "" }, "", "pool: "},
		"no epoch":                     {func(s *told) { s.epoch = "" }, "", "epoch: "},
		"another pool":                 {func(s *told) { s.pool = was.pool }, "pool: ", "pool: "},
		"another epoch":                {func(s *told) { s.epoch = was.epoch }, "epoch: ", "epoch: "},
	} {
		t.Run(name, func(t *testing.T) {
			says := right()
			c.change(&says)
			for of, found := range map[string][2]string{"differs": {says.differs(now), c.differs}, "lacks": {says.lacks(was, now), c.lacks}} {
				if got, want := found[0], found[1]; !strings.HasPrefix(got, want) || want == "" && got != "" {
					t.Errorf("%s: %q, want %q", of, got, want)
				}
			}
		})
	}
	if !maps.Equal(was.changed(was), map[string]bool{}) {
		t.Error("a block differs from itself")
	}
}
