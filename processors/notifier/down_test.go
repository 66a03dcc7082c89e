package notifier_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics/polltest"
)

// up runs the facts, the notifier and the sender in this process; down stops them, and waits for their end.
func (w *town) up() (down func()) {
	w.t.Helper()
	s := w.base
	s.Hold = time.Minute
	w.mu.Lock()
	s.Number, s.Instance, s.Dir = len(w.starts), "a", filepath.Join(w.logs, "a")
	p := &process{start: &s, dead: make(chan struct{})}
	close(p.dead) // it is no process to be killed
	w.starts = append(w.starts, p)
	w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	done := false
	down = func() {
		if cancel(); !done {
			done = true
			check(w.t, <-ended)
		}
	}
	w.t.Cleanup(down)
	return down
}

// told is an alert that a wallet is to get, on all channels.
type told struct {
	d    *deal
	kind string
	late bool
}

// want waits until these alerts have come, each once on every channel to both parties, and no other.
func (w *town) want(all []told) {
	w.t.Helper()
	want := map[string]told{}
	var ids []string
	for _, one := range all {
		for _, wallet := range []common.Address{one.d.borrower, one.d.lender} {
			for _, channel := range notifier.Channels {
				id := model(one.d, wallet, channel.String(), one.kind)
				name := hex.EncodeToString(id[:16])
				want[name] = one
				ids = append(ids, name)
			}
		}
	}
	w.delivered(ids)
	w.mu.Lock()
	defer w.mu.Unlock()
	mails := 0
	for id, came := range w.came {
		one, known := want[id]
		if !known || len(came) != 1 {
			w.t.Errorf("alert %s came %d times, %q", id, len(came), w.texts[id])
			continue
		}
		if text := w.texts[id]; text != "" {
			if mails++; strings.Contains(text, "This message is late.") != one.late {
				w.t.Errorf("%s of deal %d, late: %v: %s", one.kind, one.d.id, one.late, text)
			}
		}
	}
	if mails != 2*len(all) {
		w.t.Errorf("%d mails, want %d", mails, 2*len(all))
	}
}

// After an hour and a quarter down, of processor and sender, each party is told of the nearest threshold alone, and
// that it is late, also where an earlier one had waited for its receiver; of what comes due later, it is told as ever.
func TestHourDown(t *testing.T) {
	const minute = 60
	w := newTown(t, "kfake", rand.New(rand.NewPCG(1, 2)))
	down := w.up()
	start := w.head.Timestamp + 4*hour
	ending := func(id int64, after uint64) *deal {
		d := &deal{id: id, borrower: w.wallets[0], lender: w.wallets[1], fundedAt: w.head.Timestamp + minute, expiry: start + after}
		d.graceEnd = d.expiry + 24*hour
		return d
	}
	one := ending(1, 80*minute)          // an hour before it ends is while all is down
	both := ending(2, 62*minute)         // so are an hour before its end and the end
	end := ending(3, 40*minute)          // so is its end; the hour before was told of
	waiting := ending(4, 50*minute)      // too late for the alert of one hour before its end
	later := ending(5, 6*hour+85*minute) // nothing of it
	soon := ending(6, 24*hour+74*minute) // a day before its end is a minute before the start
	all := []*deal{one, both, end, waiting, later, soon}
	for _, d := range all {
		w.block(minute, w.listed(d), w.funded(d))
		d.fundedAt = w.head.Timestamp
	}
	// Until then all is well.
	until := func(at uint64) {
		for w.head.Timestamp < at {
			w.block(min(minute, at-w.head.Timestamp))
		}
	}
	w.block(start - 21*minute - w.head.Timestamp)
	until(start - 19*minute)
	before := []told{{end, "t1", false}}
	w.moves(start - 12*minute)
	w.want(before)
	w.mu.Lock()
	w.away = true
	w.mu.Unlock()
	until(start - 8*minute)
	polltest.Until(t, "the receivers have refused what is due", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.refused >= 6 // two wallets, three channels
	})
	down()
	w.mu.Lock()
	w.away = false
	w.mu.Unlock()

	// The ingester went on meanwhile.
	for end := start + 76*minute; w.head.Timestamp < end; {
		w.ago = time.Duration(end-w.head.Timestamp) * time.Second
		until(min(w.head.Timestamp+minute, end))
	}
	w.ago = 0
	w.block(0)
	down = w.up()
	late := append(before, told{one, "t1", true}, told{both, "expiry", true}, told{end, "expiry", true}, told{waiting, "expiry", true}, told{soon, "t24", false})
	w.want(late)
	until(start + 88*minute)
	w.want(append(late, told{later, "t6", false}, told{one, "expiry", false}))
	down()
	w.want(append(late, told{later, "t6", false}, told{one, "expiry", false}))
	if t.Failed() {
		t.Log(fmt.Sprint(w.texts))
	}
}

// An alert is late by the time of the chain, though the block by which it is due was confirmed only now.
func TestLateByTheHead(t *testing.T) {
	w := newTown(t, "kfake", rand.New(rand.NewPCG(1, 3)))
	down := w.up()
	defer down()
	var all []*deal
	for id := range int64(2) { // an hour before its end, one after the other
		d := &deal{id: id + 1, borrower: w.wallets[0], lender: w.wallets[1], fundedAt: w.head.Timestamp + 60}
		d.expiry = d.fundedAt + 5*hour + uint64(id)*hour/2
		d.graceEnd = d.expiry + 24*hour
		w.block(60, w.listed(d), w.funded(d))
		all = append(all, d)
	}
	w.block(all[0].expiry - hour - w.head.Timestamp)
	w.block(6)
	w.moves(all[0].expiry - hour + 120)
	first := told{all[0], "t1", false}
	w.want([]told{first})
	w.block(all[1].expiry - hour - w.head.Timestamp)
	w.block(26 * 60)
	w.want([]told{first, {all[1], "t1", true}})
}

// moves goes on by blocks until the sender has told of something, or some time: it holds alerts until it has seen the
// clock move since it began.
func (w *town) moves(until uint64) {
	var last time.Time
	polltest.Until(w.t, "it has seen the clock move", func() bool {
		if time.Since(last) > 100*time.Millisecond && w.head.Timestamp < until {
			last = time.Now()
			w.block(6)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.came) > 0
	})
}
