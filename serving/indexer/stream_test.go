package indexer

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// live runs the feed of an indexer and serves it on a port.
func live(t *testing.T, m *market) (x *Indexer, url string) {
	t.Helper()
	x = m.indexer()
	x.cfg.MaxStreamAge = time.Hour
	ctx, stop := context.WithCancel(t.Context())
	var g errgroup.Group
	g.Go(func() error { return x.feed.run(ctx) })
	server := httptest.NewServer(x)
	t.Cleanup(func() {
		stop()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return x, server.URL
}

// event is one of the stream.
type event struct {
	name, id, data string
	fields         map[string]any
}

// reader is a caller of /stream that keeps what it is told: each deal as it was told last, and the listed.
type reader struct {
	t      *testing.T
	doc    *apitest.Document
	events chan event
	leave  func()

	id     string
	deals  map[string]string
	listed map[string]bool
	last   map[string]string // of the pool and of the epoch
	met    map[string]int
}

var streamSchemas = map[string]string{
	"deal": "StreamDeal", "listing": "StreamListing", "pool": "PoolOverview", "epoch": "StreamEpoch", "block": "StreamBlock", "pipeline": "Pipeline",
}

func (r *reader) connect(url string) {
	r.t.Helper()
	ctx, leave := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/stream?with=pipeline", http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.id != "" {
		req.Header.Set("Last-Event-ID", r.id)
	}
	resp, err := http.DefaultClient.Do(req) //nolint:bodyclose // the goroutine that reads it closes it
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		r.t.Fatalf("%v %v", resp, err)
	}
	events, done := make(chan event), make(chan struct{})
	r.events = events
	r.leave = func() { leave(); <-done }
	r.t.Cleanup(r.leave)
	go func() {
		defer close(done)
		defer close(events)
		defer func() { _ = resp.Body.Close() }()
		var e event
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); name {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data = value
			case "":
				if e.name != "" {
					select {
					case events <- e:
					case <-ctx.Done():
						return
					}
				}
				e = event{}
			}
		}
	}()
}

// until takes events until the block is told, or another event that ends the wait.
func (r *reader) until(at topics.BlockRef) event {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case e, ok := <-r.events:
			if !ok {
				return event{}
			}
			r.take(&e)
			if e.name == "reset" || e.name == "dropped" || e.name == "block" && e.fields["hash"] == at.Hash.Hex() {
				return e
			}
		case <-deadline:
			r.t.Fatalf("block %d was not told within 10 s", at.Number)
		}
	}
}

func (r *reader) take(e *event) {
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(e.data))
	if err != nil {
		r.t.Fatalf("%s %s: %v", e.name, e.data, err)
	}
	if schema := streamSchemas[e.name]; schema != "" {
		if err := r.doc.Validate(schema, value); err != nil {
			r.t.Fatalf("%s %s: %v", e.name, e.data, err)
		}
	}
	r.met[e.name]++
	e.fields = map[string]any{}
	for k, v := range value.(map[string]any) {
		e.fields[k] = fmt.Sprint(v)
	}
	id := fmt.Sprint(e.fields["id"])
	switch e.name {
	case "deal":
		delete(r.deals, id)
		if _, deal, _ := strings.Cut(strings.TrimSuffix(e.data, "}"), `"deal":`); deal != "null" {
			r.deals[id] = deal
		}
	case "listing":
		delete(r.listed, id)
		if e.fields["listed"] == "true" {
			r.listed[id] = true
		}
	case "pool", "epoch":
		r.last[e.name] = e.data
	case "block":
		r.id = e.id
	}
}

// read begins with what is there, as a front end does.
func (m *market) read(t *testing.T) *reader {
	doc, err := apitest.Parse(description)
	if err != nil {
		t.Fatal(err)
	}
	return &reader{t: t, doc: doc, deals: map[string]string{}, listed: map[string]bool{}, last: map[string]string{}, met: map[string]int{}}
}

// check compares what a reader has with what the processors answer.
func (r *reader) check(m *market, router query.Reader) {
	r.t.Helper()
	all, err := router.Deals(r.t.Context(), query.DealsQuery{Limit: 500})
	if err != nil {
		r.t.Fatal(err)
	}
	want := map[string]string{}
	for i := range all.Value.Items {
		d := &all.Value.Items[i]
		want[d.Deal.ID.Dec()] = string(appendDeal(nil, d, m.at.Timestamp))
	}
	if !maps.Equal(r.deals, want) {
		r.t.Errorf("block %d: told of deals\n%v, there are\n%v", m.at.Number, r.deals, want)
	}
	page, err := router.Listings(r.t.Context(), query.ListingsQuery{Limit: 500})
	if err != nil {
		r.t.Fatal(err)
	}
	var listed []string
	for _, d := range page.Value.Items {
		listed = append(listed, d.Deal.ID.Dec())
	}
	slices.Sort(listed)
	if got := slices.Sorted(maps.Keys(r.listed)); !slices.Equal(got, listed) {
		r.t.Errorf("block %d: told of listings %v, there are %v", m.at.Number, got, listed)
	}
	pool, err := router.Pool(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for name, b := range map[string][]byte{"pool": appendPoolEvent(nil, &pool.Value), "epoch": appendEpochEvent(nil, &pool.Value)} {
		if _, want, _ := strings.Cut(strings.TrimSpace(string(b)), "\ndata: "); r.last[name] != want {
			r.t.Errorf("block %d: told of the %s\n%s, it is\n%s", m.at.Number, name, r.last[name], want)
		}
	}
}

// TestStreamTellsAllThatThereIs: over blocks, reorgs, lost connections and whatever the feed forgot, a
// reader of nothing but the stream has what is there.
func TestStreamTellsAllThatThereIs(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newMarket(t)
	x, url := live(t, m)
	stays, comes := m.read(t), m.read(t)
	for _, r := range []*reader{stays, comes} {
		r.connect(url)
		r.until(m.at)
	}
	router := m.router()
	states, bids := map[uint64]contracts.DealState{}, uint64(0)
	connected := true
	for range 60 {
		revert := 0
		if len(m.chain) > 4 && rng.IntN(5) == 0 {
			revert = 1 + rng.IntN(3)
		}
		timestamp := m.chain[len(m.chain)-1-revert].Timestamp + rng.Uint64N(4)
		var events []any
		if revert > 0 { // the fork's own story begins from deals that no block before it has
			states = map[uint64]contracts.DealState{}
		}
		for range rng.IntN(4) {
			id := 10_000*(1+uint64(m.forks)) + 10*uint64(len(m.chain)) + rng.Uint64N(3)
			if _, ok := states[id]; !ok {
				states[id] = contracts.DealListedState
				events = append(events, listed(id, func(e *contracts.DealListed) { e.ListingExpiry = timestamp + rng.Uint64N(6) }))
				continue
			}
			bids++
			events = append(events, bid(id, bids, 900, timestamp+100000, terms1))
		}
		m.land(revert, timestamp, events...)
		stays.until(m.at)
		stays.check(m, router)
		if connected {
			comes.until(m.at)
			comes.check(m, router)
		}
		if rng.IntN(3) == 0 {
			if connected {
				comes.leave()
			} else {
				comes.connect(url)
				comes.until(m.at)
				comes.check(m, router)
			}
			connected = !connected
		}
	}
	if n := testutil.ToFloat64(x.metrics.resumed.WithLabelValues(resumedFeed)); n == 0 {
		t.Error("nobody went on from what the feed has")
	}
	if stays.met["reset"]+comes.met["reset"]+stays.met["dropped"] > 0 {
		t.Errorf("somebody had to begin anew: %v %v", stays.met, comes.met)
	}
	// Alone, a caller finds a feed that forgot: the processors tell what changed.
	stays.leave()
	if connected {
		comes.leave()
	}
	polltest.Until(t, "the feed has no callers", func() bool {
		x.feed.mu.Lock()
		defer x.feed.mu.Unlock()
		return x.feed.followers == 0
	})
	m.block(m.at.Timestamp+1, listed(9_000_000))
	before := testutil.ToFloat64(x.metrics.resumed.WithLabelValues(resumedProcessors))
	comes.connect(url)
	comes.until(m.at)
	comes.check(m, router)
	if n := testutil.ToFloat64(x.metrics.resumed.WithLabelValues(resumedProcessors)); n != before+1 {
		t.Errorf("%v went on from the processors, before %v", n, before)
	}
	// Who was told of a block by another node, before this one's feed had it, is not told of it again.
	c, err := x.reader.Changes(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	x.feed.mu.Lock()
	tenure := x.feed.tenure
	x.feed.mu.Unlock()
	news, moved, err := (&subscription{x: x, conn: &httpapi.Stream{}, have: &c.At}).resume(t.Context(), tenure)
	if err != nil || len(news) > 0 || moved == nil {
		t.Errorf("told again of block %d: %q %v", c.At.Block.Number, news, err)
	}
}

func TestStreamOfWhatIsNotKnown(t *testing.T) {
	m := newMarket(t)
	m.block(start+1, listed(1))
	x, url := live(t, m)
	r := m.read(t)
	forked := m.chain[0]
	forked.Hash[0] ^= 0xff // a block of another chain
	r.id = string(x.ids.append(nil, query.Moment{Block: forked}))
	r.connect(url)
	if e := r.until(m.at); e.name != "reset" {
		t.Fatalf("%+v", e)
	}
	if e := r.until(m.at); e.name != "block" || r.met["pool"] != 1 || r.met["epoch"] != 1 {
		t.Errorf("after the reset: %+v %v", e, r.met)
	}
	// What the processors have forgotten, everybody must read anew.
	m.block(start + 2)
	r.until(m.at)
	for p := range partitions {
		m.Opened(engine.Partition{ID: int32(p), Incarnation: 1, Reverts: 9}, elsewhere{at: m.at})
	}
	m.set(func(m *market) { m.reverts = 9 })
	m.block(start+3, listed(2))
	if e := r.until(m.at); e.name != "reset" {
		t.Fatalf("%+v", e)
	}
	r.until(m.at)
	if n := testutil.ToFloat64(x.metrics.restarts); n != 1 {
		t.Errorf("%v restarts", n)
	}
	made := &eventIDs{httpapi.NewSigner("somebody's", "stream of chain 4663")}
	for _, id := range []string{
		"x", "1:0x:0:0", "1:2:3:4", "1:2:3:4:5", r.id + "0x", strings.ToUpper(r.id), strings.Repeat("1", 5000),
		"1" + r.id, string(made.append(nil, query.Moment{Block: m.at})),
	} {
		c := apitest.NewClient(t, x, description)
		if code, message := c.Get(t, "/stream", "Last-Event-ID", id).Error(t); code != "INVALID_INPUT" || !strings.HasPrefix(message, `"Last-Event-ID" `) {
			t.Errorf("ID %.90s: %s %s", id, code, message)
		}
	}
}

// TestStreamWaitsForTheIndex: who comes while a partition changes hands, or before the first block, waits for the index
// and is not refused, because EventSource does not come back after that. It comes back where the stream ends.
func TestStreamWaitsForTheIndex(t *testing.T) {
	m := unstarted(t, deployed)
	x, url := live(t, m)
	early := m.read(t)
	early.connect(url)
	m.block(start)
	early.until(m.at)
	m.block(start+1, listed(1), listed(2))
	early.until(m.at)
	early.leave()
	polltest.Until(t, "the feed has no callers", func() bool {
		x.feed.mu.Lock()
		defer x.feed.mu.Unlock()
		return x.feed.followers == 0
	})

	m.set(func(m *market) { m.gone = true })
	late := m.read(t)
	early.connect(url)
	late.connect(url)
	m.set(func(m *market) { m.gone = false })
	if e := late.until(m.at); e.name != "block" {
		t.Errorf("%+v", e)
	}
	m.block(start+2, listed(3))
	early.until(m.at)
	early.check(m, m.router())
	if early.met["reset"] > 0 {
		t.Errorf("somebody had to begin anew: %v", early.met)
	}

	m.set(func(m *market) { m.gone = true })
	other, url := live(t, m)
	other.beginWait = time.Millisecond
	r := m.read(t)
	r.connect(url)
	if e, open := <-r.events; open {
		t.Errorf("%+v of an index that nobody has", e)
	}
}

// TestSlowCaller: one that takes nothing is told and dropped, and holds up nobody.
func TestSlowCaller(t *testing.T) {
	m := newMarket(t)
	x := m.indexer()
	slow, quick := &subscription{x: x}, &subscription{x: x}
	x.feed.join()
	defer x.feed.leave()
	x.feed.step(t.Context())
	for _, s := range []*subscription{slow, quick} {
		if news, _, err := s.next(t.Context()); !strings.Contains(text(news), "event: block\n") || err != nil {
			t.Fatalf("%q %v", news, err)
		}
	}
	for range maxFrames + 1 {
		m.block(m.at.Timestamp + 1)
		x.feed.step(t.Context())
		if news, _, err := quick.next(t.Context()); !strings.Contains(text(news), m.at.Hash.Hex()) || err != nil {
			t.Fatalf("block %d: %q %v", m.at.Number, news, err)
		}
	}
	if news, _, err := slow.next(t.Context()); text(news) != droppedEvent || err == nil || testutil.ToFloat64(x.metrics.dropped) != 1 {
		t.Errorf("%q %v", news, err)
	}
}

// text is what a caller reads of pieces.
func text(pieces net.Buffers) string { return string(bytes.Join(pieces, nil)) }

// TestCallersShareFrames: what many callers lack is in memory once.
func TestCallersShareFrames(t *testing.T) {
	x := newMarket(t).indexer()
	at := query.Moment{Reverts: 1}
	data := make([]byte, 4<<20)
	x.feed.known, x.feed.at, x.feed.frames = true, at, []frame{{at: at, data: data}}
	for range 64 {
		s := &subscription{x: x}
		s.set(query.Moment{}, x.feed.tenure)
		news, _, err := x.feed.after(s)
		if err != nil || len(news) != 1 || &news[0][0] != &data[0] {
			t.Fatalf("%d pieces, %v", len(news), err)
		}
	}
}

var block9 = topics.BlockRef{Number: 9, Hash: common.Hash{9}, Timestamp: 99}

// elsewhere is where an owner begins: not where the last one left.
type elsewhere struct {
	state.View
	at topics.BlockRef
}

func (e elsewhere) At() topics.BlockRef { return e.at }

func TestMoments(t *testing.T) {
	want := query.Moment{Block: block9, Reverts: 7}
	ids := &eventIDs{httpapi.NewSigner("", "test")}
	got, ok := ids.parse(string(ids.append(nil, want)))
	if !ok || got != want {
		t.Errorf("%v %v", got, ok)
	}
}

func FuzzMoments(f *testing.F) {
	ids := &eventIDs{httpapi.NewSigner("", "test")}
	f.Add(string(ids.append(nil, query.Moment{Block: block9})))
	f.Add("1:0x00:0:0:")
	f.Add("::::")
	f.Fuzz(func(t *testing.T, id string) {
		if m, ok := ids.parse(id); ok && string(ids.append(nil, m)) != id {
			t.Errorf("%q is read as %v", id, m)
		}
	})
}

func TestPrefersHTML(t *testing.T) {
	for accept, want := range map[string]bool{
		"": false, "*/*": false, "application/json": false, "text/html": true, "text/html,application/xhtml+xml,*/*;q=0.8": true,
		"application/json, text/html;q=0.9": false, "text/html;q=0": false, "TEXT/HTML; q=0.5": true, "text/*": false,
	} {
		if got := prefersHTML([]string{accept}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
}

func TestPage(t *testing.T) {
	c := newMarket(t).serve()
	r := c.Get(t, "/", "Accept", "text/html,*/*;q=0.8")
	if h := r.Header; h.Get("Content-Security-Policy") != httpapi.PagePolicy || h.Get("Vary") != "Accept, Accept-Encoding" || !strings.HasPrefix(string(r.Body), "<!doctype html>") {
		t.Errorf("%v %.80s", h, r.Body)
	}
	// Nothing in it needs more than the policy allows.
	page := strings.Replace(string(r.Body), ` data-explorer="https://explorer.example"`, "", 1) // which only links go to
	for _, inline := range []string{"<style", " style=", " onclick=", "javascript:", "http:", "https:"} {
		if strings.Contains(page, inline) {
			t.Errorf("the page has %q", inline)
		}
	}
	for path := range strings.FieldsFuncSeq(string(r.Body), func(r rune) bool { return r == '"' }) {
		if strings.HasPrefix(path, "/page/") {
			if got := c.Get(t, path); got.Status != 200 || len(got.Body) == 0 {
				t.Errorf("%s: %d", path, got.Status)
			}
		}
	}
	for _, target := range []string{"/?utm_source=x", "/?utm_source=x&utm_source=y&%zz"} {
		if r := c.Get(t, target, "Accept", "text/html,*/*;q=0.8"); r.Status != http.StatusOK {
			t.Errorf("%s: %d %s", target, r.Status, r.Body)
		}
	}
}
