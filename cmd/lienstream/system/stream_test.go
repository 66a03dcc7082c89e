package system

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
)

// listener follows /stream, and keeps the last version of each deal.
type listener struct {
	a      *api
	leave  context.CancelFunc
	lines  chan string // closed at the end of the stream
	id     string      // of the last event that has one
	deals  map[string]object
	resets int
}

// follow connects, from where the listener left off.
func (l *listener) follow(t *testing.T) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	l.leave = leave
	t.Cleanup(leave)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.a.base+"/stream", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if l.id != "" {
		req.Header.Set("Last-Event-ID", l.id)
	}
	res, err := (&http.Client{}).Do(req) //nolint:bodyclose // whoever reads it closes it
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET /stream: %v %v", res, err)
	}
	l.lines = make(chan string, 1024)
	go l.read(ctx, res.Body, l.lines)
}

func (l *listener) read(ctx context.Context, body io.ReadCloser, lines chan<- string) {
	defer close(lines)
	defer func() { _ = body.Close() }()
	s := bufio.NewScanner(body)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		select {
		case lines <- s.Text():
		case <-ctx.Done():
			return
		}
	}
}

// until reads events up to a block, or until it is told to start over.
func (l *listener) until(t *testing.T, block string) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	var name, id string
	for {
		var line string
		select {
		case <-deadline:
			t.Fatalf("/stream did not tell of block %s within 30 s", block)
		case l, ok := <-l.lines:
			if !ok {
				t.Fatal("/stream ended")
			}
			line = l
		}
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			data, err := decodeObject([]byte(value))
			if err != nil {
				t.Fatalf("event %s: %v: %s", name, err, value)
			}
			l.take(name, data)
			if name == "block" {
				l.id = id
			}
			if name == "reset" || name == "block" && data["hash"] == block {
				return
			}
		}
	}
}

func (l *listener) take(name string, data object) {
	switch name {
	case "reset":
		l.deals = map[string]object{}
		l.resets++
	case "deal":
		id := text(data["id"])
		delete(l.deals, id)
		if deal, ok := data["deal"].(object); ok {
			l.deals[id] = lasting(deal)
		}
	}
}

// lasting leaves out what changes with time alone: no event tells that a bid has expired.
func lasting(deal object) object {
	deal = maps.Clone(deal)
	delete(deal, "openBidCount")
	delete(deal, "bestBid")
	return deal
}

// TestStreamAcrossProcesses: /stream of a node whose processors are other processes sends every change, through reorgs.
// A client that reconnects resumes where it was, also at a serving node that has just started. One that was away for too
// long is told to start over.
func TestStreamAcrossProcesses(t *testing.T) {
	w := newWorld(t, "devchain", "real", devchain.ScenarioConfig{
		Seed: seed(t), TxsPerBlock: 6, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 12, MaxReorgDepth: 6,
	})
	w.mine(t.Context(), t, 40)
	f := newFleet(t, w)
	f.join(t, "ingest", "ingest")
	f.processors(t, "a")
	f.processors(t, "b")
	f.serving(t)
	f.serves(t)
	f.balanced(t, "a", "b")
	l := &listener{a: f.api, deals: map[string]object{}}
	head := func() string { t.Helper(); return settle(t, f.api, w.judge, time.Minute) }
	// anew does what a client has to when it starts, or starts over: read everything, then follow.
	anew := func() {
		t.Helper()
		block := head()
		l.until(t, block)
		items, err := f.api.list(t.Context(), "/deals?limit=200", "items", block)
		if err != nil {
			t.Fatal(err)
		}
		for id, deal := range byKey(t, items, "id") {
			l.deals[id] = lasting(deal)
		}
	}
	told := func(what string) {
		t.Helper()
		block := head()
		l.until(t, block)
		m, err := w.judge.at(t.Context(), hash(block))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]object{}
		for id, deal := range m.Deals {
			want[id] = lasting(deal)
		}
		equal(t, what, l.deals, want)
	}
	l.follow(t)
	anew()
	for range 5 {
		w.mine(t.Context(), t, 6)
		told("what the stream told")
	}

	// Away for a while: the node that serves remembers.
	l.leave()
	w.mine(t.Context(), t, 8)
	head()
	l.follow(t)
	told("what the stream told who came back")

	// A serving node that has just started remembers nothing; the processors do.
	l.leave()
	w.mine(t.Context(), t, 8)
	f.restart("serving")
	head()
	l.follow(t)
	told("what the stream told who came back to a new node")
	if l.resets > 0 {
		t.Errorf("the listener was told to begin anew %d times", l.resets)
	}
	if n := f.nodes["serving"].count(t, "lienstream_indexer_stream_resumed_total", `from="processors"`); n != 1 {
		t.Errorf("%v resumed from what the processors remember", n)
	}

	// Processors that have just started remember nothing either, and say so.
	l.leave()
	w.mine(t.Context(), t, 8)
	head()
	for _, name := range []string{"a", "b", "serving"} {
		f.restart(name)
	}
	w.mine(t.Context(), t, 2)
	head()
	l.follow(t)
	for resets := l.resets; l.resets == resets; {
		l.until(t, head())
	}
	anew()
	w.mine(t.Context(), t, 6)
	told("what the stream told who began anew")
	for _, name := range []string{"serving", "a", "b", "ingest"} {
		f.nodes[name].interrupt(t)
	}
}
