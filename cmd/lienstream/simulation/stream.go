package simulation

import (
	"bufio"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// listeners are clients of /stream.
const listeners = 2

// Bounds of the laws of /stream where nothing is broken, in virtual time.
const (
	absentWithin = 5 * time.Second // who was away for that long is told what it missed
	silentWithin = 2 * time.Second // since a block was overtaken, until a client is told of a later one
)

// follower holds the events of /stream, of one serving node after another, against the oracle's market.
type follower struct {
	*run

	id    string             // of the last block event
	heard time.Time          // when it came
	well  bool               // nothing was broken then
	block common.Hash        // of that event; zero: everything has to be read again
	host  string             // that it is connected to
	since time.Time          // when it connected
	hop   context.CancelFunc // with the next block's event it goes on at another node; nil: it stays

	market *market // as of the last block that the oracle knows; nil: everything has to be read again
	before told    // with blocks after that one, which the oracle does not know
	now    told    // of the block whose event is next
	deal   string  // whose listing has to be told next
	shared bool    // it is told what all clients are; what is read for one that resumes has the pool and the epoch in any case
}

// listen follows the stream of one serving node after another, each time from where it left off. Half of the times it leaves
// with a block's event, and goes on at once at a node that may not have come so far.
func (r *run) listen(ctx context.Context, hosts []string, rng *rand.Rand) {
	l := &follower{run: r, before: newTold()}
	for ctx.Err() == nil {
		l.host = hosts[rng.IntN(len(hosts))]
		stay, leave := context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(10*time.Second))))
		hopped := false
		if l.hop = nil; rng.IntN(2) == 0 {
			l.hop = func() { hopped = true; leave() }
		}
		l.follow(stay)
		if leave(); !hopped {
			l.judgeSilence(ctx)
			time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
		}
	}
}

// follow reads one connection, until it ends.
func (l *follower) follow(ctx context.Context) {
	l.since = time.Time{}
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
	case res.StatusCode >= http.StatusInternalServerError && (!l.isWell() || l.freesNow(ctx)):
		return
	case res.StatusCode != http.StatusOK:
		l.found("stream refused", "%s answers %s to the ID of another's event", l.host, res.Status)
		return
	}
	l.begin()
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
				l.take(name, id, data)
			}
			name, data = "", ""
		}
	}
}

// begin begins a connection. What came of a block without its last event comes again.
func (l *follower) begin() {
	l.since, l.now, l.deal = time.Now(), newTold(), ""
	if l.shared = l.id == ""; !l.shared {
		l.rmu.Lock()
		l.result.resumes++
		l.rmu.Unlock()
	}
}

// take takes an event. With a block's last event all since the last one are judged.
func (l *follower) take(name, id, data string) {
	if l.deal != "" && name != "listing" {
		l.found("stream lacks something", "%s: event %s after deal %s, without its listing", l.host, name, l.deal)
		l.deal = ""
	}
	switch name {
	case "deal":
		var of struct {
			ID   string
			Deal json.RawMessage
		}
		if l.decode(name, data, &of) {
			_, again := l.now.deals[of.ID]
			l.once(again, "deal "+of.ID)
			l.now.deals[of.ID], l.deal = string(of.Deal), of.ID
		}
	case "listing":
		var of struct {
			ID     string
			Listed *bool
		}
		switch {
		case !l.decode(name, data, &of):
		case of.Listed == nil || of.ID != l.deal:
			l.found("stream", "%s: %s after deal %q", l.host, data, l.deal)
		default:
			l.now.listed[of.ID] = *of.Listed
		}
		l.deal = ""
	case "pool":
		l.once(l.now.pool != "", name)
		l.now.pool = data
	case "epoch":
		l.once(l.now.epoch != "", name)
		l.now.epoch = data
	case "block":
		var of blockEvent
		if l.decode(name, data, &of) {
			l.judge(&of)
		}
		l.shared = l.shared || l.now.pool == "" || l.now.epoch == ""
		l.now = newTold()
		l.id, l.block, l.heard, l.well = id, of.Hash, time.Now(), l.isWell()
		if l.hop != nil {
			l.hop()
		}
	case "reset": // it begins anew, as of whatever the node has come to
		l.judgeReset()
		l.id, l.block, l.shared, l.market, l.now = "", common.Hash{}, true, nil, newTold()
	case "dropped":
	default:
		l.found("stream", "%s: event %q: %s", l.host, name, data)
	}
}

// decode reads the data of an event.
func (l *follower) decode(name, data string, to any) bool {
	err := json.Unmarshal([]byte(data), to)
	if err != nil {
		l.found("stream", "%s: event %s: %v: %s", l.host, name, err, data)
	}
	return err == nil
}

// once judges that something is told with a block for the first time.
func (l *follower) once(again bool, what string) {
	if again {
		l.found("stream tells something twice", "%s: %s, after block %s", l.host, what, l.block)
	}
}
