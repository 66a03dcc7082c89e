package simulation

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// listeners are clients of /stream.
const listeners = 2

// follower applies the events of /stream, of one serving node after another, to its copy of the deals.
type follower struct {
	*run

	id    string            // of the last block event
	block common.Hash       // of that event
	deals map[string]string // by ID, as lasting has them; nil: they have to be read again
	host  string
	hop   context.CancelFunc // with the next block's event it goes on at another node; nil: it stays
}

// listen follows the stream of one serving node after another, each time from where it left off. Half of the times it leaves
// with a block's event, and goes on at once at a node that may not have come so far.
func (r *run) listen(ctx context.Context, hosts []string, rng *rand.Rand) {
	l := &follower{run: r}
	for ctx.Err() == nil {
		l.host = hosts[rng.IntN(len(hosts))]
		stay, leave := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(10*time.Second))))
		hopped := false
		if l.hop = nil; rng.IntN(2) == 0 {
			l.hop = func() { hopped = true; leave() }
		}
		l.follow(stay)
		if leave(); !hopped {
			time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
		}
	}
}

// follow reads one connection, until it ends.
func (l *follower) follow(ctx context.Context) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.host+":80/stream", http.NoBody)
	if err != nil {
		l.found("stream", "%v", err)
		return
	}
	if l.id != "" {
		req.Header.Set("Last-Event-ID", l.id)
	}
	res, err := l.streams.Do(req)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	switch {
	case res.StatusCode >= http.StatusInternalServerError:
		return
	case res.StatusCode != http.StatusOK:
		l.found("stream refused", "%s answers %s to the ID of another's event", l.host, res.Status)
		return
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	var name, id, data string
	for lines.Scan() {
		switch field, value, _ := strings.Cut(lines.Text(), ": "); field {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			data = value
		case "": // the event is complete
			if name != "" {
				l.take(name, id, []byte(data))
			}
			name, data = "", ""
		}
	}
}

// take applies an event. After a block's last event the deals must be those of the oracle.
func (l *follower) take(name, id string, data []byte) {
	switch name {
	case "reset": // it begins anew, as of whatever the node has come to
		l.deals, l.block = nil, common.Hash{}
	case "deal":
		var told struct {
			ID   string
			Deal map[string]any
		}
		if err := json.Unmarshal(data, &told); err != nil {
			l.found("stream", "%s: event deal: %v: %s", l.host, err, data)
		}
		if l.deals == nil {
			return
		}
		if delete(l.deals, told.ID); told.Deal != nil {
			l.deals[told.ID] = lasting(told.Deal)
		}
	case "block":
		var told struct{ Hash common.Hash }
		if err := json.Unmarshal(data, &told); err != nil {
			l.found("stream", "%s: event block: %v: %s", l.host, err, data)
		}
		l.judge(told.Hash)
		if l.id, l.block = id, told.Hash; l.hop != nil {
			l.hop()
		}
	}
}

func (l *follower) judge(now common.Hash) {
	b, before := l.chain.rec.blocks[now], l.chain.rec.blocks[l.block]
	if b == nil && l.forged.stands(now, l.opt.alone) {
		l.deals = nil
		return
	}
	if b == nil {
		l.found("stream of a block that never was", "%s: %s", l.host, now)
		return
	}
	if before != nil && l.chain.isCanonical(l.block) && l.chain.isCanonical(now) && b.header.Number.Cmp(before.header.Number) <= 0 {
		l.found("stream goes back", "%s: block %s after %s", l.host, b.header.Number, before.header.Number)
	}
	want, known := l.oracle.deals[now.Hex()]
	if !known {
		l.deals = nil
		return
	}
	if len(want) == longestList { // older ones are on another page
		maps.DeleteFunc(l.deals, func(id string, _ string) bool { return want[id] == "" && older(id, want) })
	}
	if l.deals != nil {
		l.rmu.Lock()
		l.result.events++
		l.rmu.Unlock()
		if !maps.Equal(want, l.deals) {
			l.found("stream lacks something", "%s: at block %s after %s: %s", l.host, b.header.Number, l.block, different(want, l.deals))
		}
	}
	l.deals = maps.Clone(want)
}

// longestList is how long a page is at the most.
const longestList = 200

// older reports whether a deal came before all of these.
func older(id string, deals map[string]string) bool {
	for other := range deals {
		if len(other) < len(id) || len(other) == len(id) && other < id {
			return false
		}
	}
	return true
}

// different names a deal that differs from the oracle's.
func different(want, got map[string]string) string {
	for id := range want {
		if want[id] != got[id] {
			return "deal " + id + ": " + difference(want[id], got[id])
		}
	}
	for id := range got {
		if want[id] == "" {
			return "deal " + id + " is not there"
		}
	}
	return "nothing"
}

// lasting is a deal's text without what changes with time alone: no event tells that a bid has expired.
func lasting(deal map[string]any) string {
	deal = maps.Clone(deal)
	delete(deal, "openBidCount")
	delete(deal, "bestBid")
	text, _ := json.Marshal(deal) // it was decoded from JSON
	return string(text)
}
