package query_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// cleanup is a testing.TB for one iteration of a property.
type cleanup struct {
	testing.TB
	fns []func()
}

func (c *cleanup) Helper()           {}
func (c *cleanup) Cleanup(fn func()) { c.fns = append(c.fns, fn) }
func (c *cleanup) run() {
	for _, fn := range slices.Backward(c.fns) {
		fn()
	}
}
func (c *cleanup) Error(args ...any)                 { panic(args) }
func (c *cleanup) Fatal(args ...any)                 { panic(args) }
func (c *cleanup) Fatalf(format string, args ...any) { panic(append([]any{format}, args...)) }

func localRouter(t testing.TB, n read.Source, partitions int32) *query.Client {
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local = partitions, n
	r, err := query.NewClient(routing, contracts.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// owners is the owners topic: what is told before it is opened, and after.
type owners chan []*kafka.Record

func (o owners) Poll(ctx context.Context, dst []*kafka.Record) ([]*kafka.Record, error) {
	select {
	case records := <-o:
		return append(dst[:0], records...), nil
	case <-ctx.Done():
		return dst[:0], ctx.Err()
	}
}

func (o owners) Close() {}

func (o owners) tell(t testing.TB, all ...topics.Owner) {
	records := make([]*kafka.Record, len(all))
	for i, owner := range all {
		value, err := owner.Encode()
		if err != nil {
			t.Fatal(err)
		}
		records[i] = &kafka.Record{Key: owner.Key(), Value: value}
	}
	o <- records
}

// holder is a node behind HTTP.
type holder struct {
	server *httptest.Server
	node   *node

	mu    sync.Mutex
	taken []net.Conn // connections that the node has upgraded
}

// die ends the node like a power cut.
func (h *holder) die() {
	h.server.CloseClientConnections()
	h.server.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.taken {
		_ = c.Close()
	}
}

func (h *holder) announce(t testing.TB, o owners, instance string) {
	addr := h.server.Listener.Addr().String()
	o.tell(t, topics.Owner{Partition: partitions, Instance: instance, Addr: addr, State: topics.StateRunning})
	for _, w := range h.node.Watermarks() {
		o.tell(t, topics.Owner{
			Partition: w.Partition, Instance: instance, Addr: addr, Role: w.Role,
			Incarnation: w.Incarnation, At: w.At, Latest: w.Latest, ObservedAt: w.ObservedAt, Reverts: w.Reverts, State: topics.StateRunning,
		})
	}
}

// remoteRouter runs a router that holds nothing and has found the holders.
func remoteRouter(t testing.TB, partitions int32, holders map[string]*holder) *query.Client {
	r, topic := emptyRouter(t, partitions)
	for instance, h := range holders {
		h.announce(t, topic, instance)
	}
	polltest.Until(t, "the router knows the nodes", func() bool { _, err := r.Watermarks(); return err == nil })
	return r
}

func emptyRouter(t testing.TB, partitions int32) (*query.Client, owners) {
	topic := make(owners, 64)
	routing := query.DefaultConfig()
	routing.Partitions, routing.Instance, routing.Timeout, routing.Interval = partitions, "me", 10*time.Second, time.Millisecond
	routing.Patience, routing.Owners = 200*time.Millisecond, func() (query.Feed, error) { return topic, nil }
	return runRouter(t, routing), topic
}

// runRouter runs a router until the test ends.
func runRouter(t testing.TB, cfg query.Config) *query.Client {
	r, err := query.NewClient(cfg, deployment)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return r
}

// serveMarket serves the market of a node to the routers of others.
func serveMarket(ctx context.Context, source query.Source) http.Handler {
	return read.NewHandler(ctx, zap.NewNop(), read.Served{Source: source, Application: query.Application()})
}

func serve(t testing.TB, n *node) *holder {
	h := &holder{node: n, server: httptest.NewUnstartedServer(serveMarket(t.Context(), n))}
	h.server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateHijacked {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.taken = append(h.taken, c)
		}
	}
	h.server.Start()
	t.Cleanup(h.server.Close)
	return h
}

const partitions = 4

// owned is the partition of deal 1, by which a test of one partition goes.
var owned = topics.Partition(listing(1).Entity().Key(), partitions)

func TestDealComesWithItsBidsAndAListWithWhatTheyComeTo(t *testing.T) {
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	place := func(bid uint64, terms byte) *contracts.BidPlaced {
		return &contracts.BidPlaced{DealID: word(1), BidID: word(bid), Lender: address(9), Price: word(bid), Expiry: 1 << 39, TermsHash: [32]byte{terms}}
	}
	n.land(t, partitions, block(1), listing(1), place(1, 1), place(2, 1), place(3, 1),
		&contracts.BidWithdrawn{DealID: word(1), BidID: word(2)},
		&contracts.DealTermsUpdated{DealID: word(1), Cap: word(1_000), MinPrice: word(800), TermsHash: [32]byte{2}}, place(4, 2))
	r := localRouter(t, n, partitions)

	d, err := r.DealWithReward(t.Context(), uint256.NewInt(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := bidIDs(d.Value.DealWithBids); !cmp.Equal(got, []uint64{1, 2, 3, 4}) || d.Value.Deal.OpenBids != 3 || d.At != block(1) {
		t.Errorf("deal has bids %v, %d open, as of %v", got, d.Value.Deal.OpenBids, d.At)
	}
	page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]query.DealWithBids{"deal": d.Value.DealWithBids, "listing": page.Value.Items[0]} {
		if got.Acceptable.Count != 1 || got.Acceptable.Best == nil || got.Acceptable.Best.ID != word(4) {
			t.Errorf("%s: acceptable are %+v, want only that on the current terms", what, got.Acceptable)
		}
	}
	if len(page.Value.Items[0].Bids) > 0 {
		t.Error("a listing has bids")
	}

	missing, err := r.DealWithReward(t.Context(), uint256.NewInt(2))
	if !errors.Is(err, query.ErrNotFound) || missing.At != block(1) {
		t.Errorf("a deal that is not there: %v as of %v", err, missing.At)
	}
}

func bidIDs(d query.DealWithBids) (ids []uint64) {
	for _, b := range d.Bids {
		ids = append(ids, b.ID.Uint64())
	}
	return ids
}

func TestBalancesAndAssets(t *testing.T) {
	n := newNode(t, topics.RoleOwner, 1, span(partitions)...)
	credit := func(account, asset byte, kind contracts.BalanceKind, amount uint64) contracts.Event {
		return &contracts.Credited{Account: address(account), Asset: address(asset), Kind: kind, AmountOrTokenID: word(amount)}
	}
	events := []contracts.Event{
		credit(1, 5, contracts.BalanceUSDG, 100), credit(1, 5, contracts.BalanceUSDG, 11), credit(1, 4, contracts.BalanceERC20, 7),
		credit(1, 6, contracts.BalanceNFT, 42), credit(2, 5, contracts.BalanceUSDG, 1),
	}
	for i := range byte(9) {
		events = append(events, &contracts.AssetSet{Token: address(i), Lane: contracts.Lane(i % 2), Symbol: "T"})
	}
	n.land(t, partitions, block(1), events...)
	for name, r := range map[string]query.Reader{
		"local": localRouter(t, n, partitions), "remote": remoteRouter(t, partitions, map[string]*holder{"a": serve(t, n)}),
	} {
		got, err := r.WalletBalances(t.Context(), query.WalletListQuery{Wallet: address(1), Limit: 5})
		want := []topics.Balance{
			{Account: address(1), Asset: address(4), Kind: contracts.BalanceERC20, Amount: word(7)},
			{Account: address(1), Asset: address(5), Kind: contracts.BalanceUSDG, Amount: word(111)},
			{Account: address(1), Asset: address(6), Kind: contracts.BalanceNFT, Amount: word(42)},
		}
		if diff := cmp.Diff(want, got.Value.Items); err != nil || diff != "" {
			t.Errorf("%s balances: %v\n%s", name, err, diff)
		}
		var tokens []byte
		stock := contracts.LaneStock
		for q := (query.AssetsQuery{Lane: &stock, Limit: 2}); ; {
			page, err := r.Assets(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range page.Value.Items {
				tokens = append(tokens, a.Token[19])
			}
			if q.After = page.Value.Next; q.After == nil {
				break
			}
		}
		if !cmp.Equal(tokens, []byte{0, 2, 4, 6, 8}) {
			t.Errorf("%s: stock tokens %v", name, tokens)
		}
	}
}

// Every block sets the cap of every deal to its own number: an answer that shows two of them, or another
// than that of the block it names, is torn.
func TestNoAnswerIsTorn(t *testing.T) {
	const readers, reads = 3, 300
	all := span(partitions)
	for name, split := range map[string][][]int32{"one process": {all}, "two nodes": {all[:1], all[1:]}, "here and there": {all[:2], all[2:]}} {
		t.Run(name, func(t *testing.T) {
			var nodes []*node
			for _, held := range split {
				nodes = append(nodes, newNode(t, topics.RoleOwner, 1, held...))
			}
			for _, n := range nodes {
				var events []contracts.Event
				for id := range uint64(12) {
					e := listing(id + 1)
					e.Cap, e.MinPrice = word(1), word(1)
					events = append(events, e)
				}
				n.land(t, partitions, block(1), events...)
			}
			var r *query.Client
			switch name {
			case "one process":
				r = localRouter(t, nodes[0], partitions)
			case "two nodes":
				r = remoteRouter(t, partitions, map[string]*holder{"a": serve(t, nodes[0]), "b": serve(t, nodes[1])})
			default:
				r = mixedRouter(t, nodes[0], serve(t, nodes[1]))
			}

			// A few blocks land with every read, on one partition or another, whatever the reads are at.
			var (
				wg      sync.WaitGroup
				answers atomic.Int64
				begun   = make(chan struct{})
				done    = make(chan struct{})
			)
			for range readers {
				wg.Go(func() {
					for {
						select {
						case begun <- struct{}{}:
							if notTorn(t, r) {
								answers.Add(1)
							}
						case <-done:
							return
						}
					}
				})
			}
			move := unevenly(t, nodes)
			for range reads {
				<-begun
				for range 12 {
					move()
				}
			}
			close(done)
			wg.Wait()
			if answers.Load() < reads/2 {
				t.Errorf("%d answers to %d reads", answers.Load(), reads)
			}
		})
	}
}

// notTorn reads a page and judges it. False: there was no answer, since on a busy machine more blocks may
// land between two views than are kept.
func notTorn(t *testing.T, r *query.Client) bool {
	page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 20, Sort: query.SortCap})
	if err != nil {
		if !errors.Is(err, query.ErrUnavailable) {
			t.Error(err)
		}
		return false
	}
	if len(page.Value.Items) != 12 {
		t.Errorf("%d deals, want all 12", len(page.Value.Items))
	}
	for _, d := range page.Value.Items {
		if d.Deal.Cap.Uint64() != page.At.Number {
			t.Errorf("torn: a deal as of block %d in an answer as of %d", d.Deal.Cap.Uint64(), page.At.Number)
		}
	}
	return true
}

// unevenly moves one partition on by a block whenever it is called: partitions are up to 8 blocks apart.
func unevenly(t *testing.T, nodes []*node) func() {
	var at [partitions]uint64
	for p := range at {
		at[p] = 1
	}
	random := rand.New(rand.NewPCG(1, 2))
	return func() {
		p := random.Int32N(partitions)
		if at[p] >= slices.Min(at[:])+8 {
			return
		}
		at[p]++
		var events []contracts.Event
		for id := range uint64(12) {
			e := &contracts.DealTermsUpdated{DealID: word(id + 1), Cap: word(at[p]), MinPrice: word(1)}
			if topics.Partition(e.Entity().Key(), partitions) == p {
				events = append(events, e)
			}
		}
		for _, n := range nodes {
			if n.parts[p] != nil {
				n.advance(t, p, block(at[p]), events...)
			}
		}
	}
}

func mixedRouter(t *testing.T, here *node, there *holder) *query.Client {
	topic := make(owners, 64)
	there.announce(t, topic, "b")
	routing := query.DefaultConfig()
	routing.Partitions, routing.Local, routing.Instance, routing.Interval = partitions, here, "me", time.Millisecond
	routing.Owners = func() (query.Feed, error) { return topic, nil }
	r, err := query.NewClient(routing, contracts.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	polltest.Until(t, "the router knows the nodes", func() bool { _, err := r.Watermarks(); return err == nil })
	return r
}

func TestAStandbyAnswersForADeadOwnerOnceItIsNotBehind(t *testing.T) {
	owner := serve(t, newNode(t, topics.RoleOwner, 5, span(partitions)...))
	standby := serve(t, newNode(t, topics.RoleStandby, 5, span(partitions)...))
	for number := range uint64(10) {
		for _, h := range []*holder{owner, standby} {
			if h == owner || number < 9 {
				h.node.land(t, partitions, block(number+1), listing(number+1))
			}
		}
	}
	r := remoteRouter(t, partitions, map[string]*holder{"owner": owner, "standby": standby})
	polltest.Until(t, "all partitions are at the block", func() bool { w, err := r.Lowest(); return err == nil && w.At == block(10) }) // the owner is known too
	if d, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); err != nil || d.At != block(10) {
		t.Fatalf("owner answers as of %v, %v", d.At, err)
	}

	owner.die()
	if d, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); !errors.Is(err, query.ErrUnavailable) {
		t.Fatalf("a standby that is behind answered as of %v, %v", d.At, err)
	}
	standby.node.land(t, partitions, block(10), listing(10))
	if d, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); err != nil || d.At != block(10) {
		t.Fatalf("standby answers as of %v, %v", d.At, err)
	}
	if page, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 20}); err != nil || len(page.Value.Items) != 10 {
		t.Fatalf("standby lists %d deals, %v", len(page.Value.Items), err)
	}
}

func TestAnOlderIncarnationIsRefused(t *testing.T) {
	zombie := serve(t, newNode(t, topics.RoleOwner, 5, span(partitions)...))
	zombie.node.land(t, partitions, block(1), listing(1))
	r, topic := emptyRouter(t, partitions)
	zombie.announce(t, topic, "zombie")
	polltest.Until(t, "the deal is read", func() bool { _, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); return err == nil })

	// Somebody else owns the partition now, and cannot be reached yet.
	topic.tell(t, topics.Owner{
		Partition: owned, Instance: "heir", Addr: "127.0.0.1:1", Role: topics.RoleOwner, Incarnation: 6, State: topics.StateRunning,
	})
	polltest.Until(t, "nobody answers for the deal", func() bool {
		_, err := r.DealWithReward(t.Context(), uint256.NewInt(1))
		return errors.Is(err, query.ErrUnavailable)
	})

	heir := serve(t, newNode(t, topics.RoleOwner, 6, span(partitions)...))
	heir.node.land(t, partitions, block(2), listing(1))
	heir.announce(t, topic, "heir")
	polltest.Until(t, "the deal is read", func() bool {
		d, err := r.DealWithReward(t.Context(), uint256.NewInt(1))
		return err == nil && d.At == block(2)
	})
	// The zombie is ahead by numbers, and still not asked.
	for number := range uint64(5) {
		zombie.node.land(t, partitions, block(number+2, 'z'))
	}
	if d, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); err != nil || d.At != block(2) {
		t.Errorf("answer as of %v, %v", d.At, err)
	}
}

func TestNodesThatLeaveAreNotAsked(t *testing.T) {
	h := serve(t, newNode(t, topics.RoleOwner, 1, span(partitions)...))
	r, topic := emptyRouter(t, partitions)
	if _, err := r.Head(t.Context()); !errors.Is(err, query.ErrUnavailable) {
		t.Errorf("head of nothing: %v", err)
	}
	h.announce(t, topic, "a")
	polltest.Until(t, "the head is known", func() bool { _, err := r.Head(t.Context()); return err == nil })
	h.node.land(t, partitions, block(7))
	polltest.Until(t, "the head is that of block 7", func() bool {
		head, err := r.Head(t.Context())
		return err == nil && head.Indexed == block(7) && head.Latest == 8
	})

	former := maps.Clone(h.node.parts)
	h.node.mu.Lock()
	delete(h.node.parts, 0)
	h.node.mu.Unlock()
	polltest.Until(t, "nobody knows the head", func() bool { _, err := r.Head(t.Context()); return errors.Is(err, query.ErrUnavailable) })
	h.node.mu.Lock()
	h.node.parts = former
	h.node.mu.Unlock()
	polltest.Until(t, "the head is known", func() bool { _, err := r.Head(t.Context()); return err == nil })

	// It leaves, and is not asked although it would answer.
	topic <- []*kafka.Record{{Key: topics.Owner{Partition: partitions, Instance: "a"}.Key()}}
	polltest.Until(t, "nobody knows the head", func() bool { _, err := r.Head(t.Context()); return errors.Is(err, query.ErrUnavailable) })
	if _, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); !errors.Is(err, query.ErrUnavailable) {
		t.Errorf("a node that left: %v", err)
	}
}

func TestReadsEndWithTheirContext(t *testing.T) {
	r := localRouter(t, newNode(t, topics.RoleOwner, 1), partitions) // nobody holds anything
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Listings(ctx, query.ListingsQuery{Limit: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := r.Listings(t.Context(), query.ListingsQuery{Limit: 1}); !errors.Is(err, query.ErrUnavailable) {
		t.Errorf("no holder: %v", err)
	}
	for _, limit := range []int{-1, 0, query.MaxLimit + 1} {
		if _, err := r.Listings(t.Context(), query.ListingsQuery{Limit: limit}); err == nil || errors.Is(err, query.ErrUnavailable) {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	routing := query.DefaultConfig()
	routing.Application, routing.Timeout, routing.Patience = "", -1, -1
	_, err := query.NewClient(routing, contracts.Deployment{})
	for _, want := range []string{"application", "partitions", "owners", "timeout", "patience"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
