package notifier_test

import (
	"encoding/binary"
	"maps"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/facts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// fundedBy is a chain whose borrower asks for alerts by email, and that has come so far that the deal's funding is
// confirmed.
func fundedBy(t *testing.T, policy facts.Policy) (*chain, *deal) {
	t.Helper()
	c := newChainOf(t, 2, policy)
	d := &deal{1, common.Address{1}, common.Address{2}, genesis + 20, genesis + 2*hour, genesis + 26*hour}
	c.subscribe(d.borrower, notifier.Email, 1, notifier.Kinds...)
	c.block(10, c.listed(d))
	c.block(10, c.funded(d))
	for range c.lag() {
		c.block(10)
	}
	return c, d
}

// An alert fires once the block by whose time it is due is confirmed, by the policy, and not before.
func TestPolicies(t *testing.T) {
	for _, policy := range facts.Policies {
		t.Run(string(policy), func(t *testing.T) {
			c, d := fundedBy(t, policy)
			c.block(hour)
			for range c.lag() {
				c.want()
				c.block(10)
			}
			c.want(model(d, d.borrower, "email", "t1"))
		})
	}
}

// While no block comes, an alert fires once the last block is confirmed, though it is too near the last tick for one.
// What was told then stays told when the block is taken back.
func TestChainStands(t *testing.T) {
	for _, policy := range facts.Policies {
		t.Run(string(policy), func(t *testing.T) {
			c, d := fundedBy(t, policy)
			c.near = true
			c.block(hour)
			c.want()
			c.stands(c.last.Safe, c.last.Finalized)
			head, before := c.head.Number, c.back(1).Number
			if policy != facts.Latest {
				c.ticks++                 // of the block before it
				until := func(n uint64) { // what confirms is there
					if policy == facts.Safe {
						c.stands(n, c.last.Finalized)
					} else {
						c.stands(head, n)
					}
				}
				until(before)
				c.want()
				until(head)
			}
			c.ticks++
			fired := model(d, d.borrower, "email", "t1")
			c.want(fired)
			c.stands(c.last.Safe, c.last.Finalized)
			c.near = false
			if policy != facts.Finalized {
				c.revert()
				c.block(hour)
			}
			for range c.lag() + 1 {
				c.block(hour)
			}
			polltest.Until(t, "the end is told of", func() bool { return len(c.alerts()) >= 2 })
			if got := c.alerts(); !slices.Equal(got, []common.Hash{fired, model(d, d.borrower, "email", "expiry")}) {
				t.Errorf("alerts %x", got)
			}
		})
	}
}

// By the policy `latest` an alert may fire by a block that is reverted. What it says is what the chain says then.
func TestLatestIsReverted(t *testing.T) {
	c := newChainOf(t, 2, facts.Latest)
	ann, bob, token := common.Address{1}, common.Address{2}, common.Address{0xee}
	c.subscribe(ann, notifier.Email, 1, notifier.Kinds...)
	d := &deal{1, ann, bob, genesis + 30, genesis + 2*hour, genesis + 26*hour}
	c.block(10, c.log("AssetSet", map[string]any{"token": token, "decimals": uint8(6), "symbol": "GLD", "name": "Gold"}))
	c.block(10)
	c.block(10, c.log("DealListed", map[string]any{"dealId": big.NewInt(d.id), "borrower": ann, "token": token, "amountOrTokenId": big.NewInt(500), "cap": big.NewInt(100)}))
	c.block(10, c.funded(d))
	c.block(hour + 60)
	fired := model(d, ann, "email", "t1")
	c.want(fired)
	is, found := c.pending(ann, d.id)
	if !found || is.Deal.Cap != "100" || is.Deal.Amount != "500" || is.Collateral == nil || *is.Collateral != (notifier.Asset{Token: token, Symbol: "GLD", Decimals: 6}) {
		t.Fatalf("before the reorg: %v, %+v", found, is)
	}

	c.revert()
	c.revert()
	c.block(5)
	polltest.Until(t, "a deal that is not funded is told of to nobody", func() bool { _, found := c.pending(ann, d.id); return !found })
	c.block(5, c.log("DealTermsUpdated", map[string]any{"dealId": big.NewInt(d.id), "cap": big.NewInt(200)}), c.funded(d))
	c.block(hour + 60)
	c.want(fired)
	polltest.Until(t, "it says the other cap", func() bool { is, found := c.pending(ann, d.id); return found && is.Deal.Cap == "200" })

	// Funded at another time, it is due at another, and the former deadline is void.
	c.revert()
	c.revert()
	later := &deal{1, ann, bob, genesis + 90, genesis + 60 + 2*hour, genesis + 60 + 26*hour}
	c.block(65, c.funded(later))
	c.want(fired)
	polltest.Until(t, "nothing is due of it", func() bool { _, found := c.pending(ann, d.id); return !found })
	c.block(hour + 60)
	c.want(fired, model(later, ann, "email", "t1"))
	is, found = c.pending(ann, d.id)
	if !found || is.Deal.Cap != "100" || is.Deal.Expiry != later.expiry {
		t.Fatalf("of another deadline: %v, %+v", found, is)
	}
}

// Events that no contract emits, of a block that a node made up, cause no alert, and after their retraction all is as
// before.
func TestEventsThatAreMadeUp(t *testing.T) {
	c, d := fundedBy(t, facts.Safe)
	other := &deal{d.id, d.borrower, common.Address{3}, genesis + 1, c.head.Timestamp + 5, c.head.Timestamp + 24*hour}
	ended := func(event string) *topics.Log { return c.log(event, map[string]any{"dealId": big.NewInt(d.id)}) }
	for _, lies := range [][]*topics.Log{
		{ended("DealClaimed")},
		{ended("DealReclaimed"), c.listed(other), c.funded(other)},
		{ended("DealCancelled"), c.listed(other), c.funded(other)},
		{c.listed(other), c.funded(other)},
		{c.funded(other)},
	} {
		c.block(10, lies...)
		c.want()
		c.revert()
	}
	c.block(hour)
	for range c.lag() {
		c.block(10)
	}
	c.want(model(d, d.borrower, "email", "t1"))
}

// Nor do an epoch and a token's name that a node made up change what is said of those that there are.
func TestNamesAndEpochsThatAreMadeUp(t *testing.T) {
	for _, policy := range facts.Policies {
		t.Run(string(policy), func(t *testing.T) { testNamesAndEpochsThatAreMadeUp(t, policy) })
	}
}

func testNamesAndEpochsThatAreMadeUp(t *testing.T, policy facts.Policy) {
	c := newChainOf(t, 2, policy)
	ann, token := common.Address{1}, common.Address{0xee}
	c.subscribe(ann, notifier.Email, 1, notifier.Kinds...)
	d := &deal{1, ann, common.Address{2}, genesis + 30, genesis + 2*hour, genesis + 26*hour}
	named := func(symbol string, decimals uint8) *topics.Log {
		return c.log("AssetSet", map[string]any{"token": token, "decimals": decimals, "symbol": symbol, "name": ""})
	}
	opened := func(budget, until uint64) *topics.Log {
		return c.log("EpochOpened", map[string]any{"n": uint64(5), "startsAt": c.head.Timestamp, "endsAt": until, "dealBudget7": budget})
	}
	c.block(10, named("GLD", 6), opened(1000, genesis+7*24*hour))
	c.block(10, c.log("DealListed", map[string]any{"dealId": big.NewInt(d.id), "borrower": ann, "token": token}))
	c.block(10, c.funded(d))
	c.block(hour + 60)
	epoch := notifier.Address{Wallet: ann, Channel: notifier.Email, Stage: notifier.EpochOpen, Subject: common.Hash{0: 0xff, 26: 5, 27: byte(notifier.EpochOpen)}}
	as := func(what string) {
		t.Helper()
		c.applied()
		if is, found := c.pending(ann, d.id); !found || is.Collateral == nil || is.Collateral.Symbol != "GLD" || is.Collateral.Decimals != 6 {
			t.Errorf("%s: %v, %+v", what, found, is.Collateral)
		}
		if is, found := c.pendingAt(epoch); !found || is.News.Budget7 != "1000" {
			t.Errorf("%s: %v, %+v", what, found, is.News)
		}
	}
	for range 2 * c.unsafe { // until it is final
		c.block(10)
	}
	as("as it was")
	for range 2 {
		c.block(10, named("LIE", 0), opened(1, c.head.Timestamp+1))
		as("beside what is made up")
		c.revert()
		c.block(10)
		as("once it was taken back")
	}
}

// A deal that ends early returns its reservation, perhaps in the same block: news that are no longer true when they may
// be announced are not announced. Wallets that were told are not told again.
func TestABudgetThatIsReturned(t *testing.T) {
	c := newChain(t, 2)
	ann := common.Address{1}
	c.subscribe(ann, notifier.Email, 1, notifier.Budget)
	event := func(name string, reserved uint64) *topics.Log {
		return c.log(name, map[string]any{"n": uint64(5), "term": uint64(contracts.ShortTerm), "reservedAfter": reserved})
	}
	settled := func() {
		for range c.lag() + 1 {
			c.block(10)
		}
		c.applied()
	}
	budget := func(stage notifier.Stage) string {
		at := notifier.Address{Wallet: ann, Channel: notifier.Email, Stage: stage, Subject: common.Hash{0: 0xff, 26: 5, 27: byte(stage)}}
		binary.BigEndian.PutUint32(at.Subject[28:], contracts.ShortTerm)
		a, found := c.pendingAt(at)
		if !found {
			return ""
		}
		return a.News.Reserved
	}
	want := func(what string, published int, most, all string) {
		t.Helper()
		if n, is90, is100 := len(c.alerts()), budget(notifier.Budget90), budget(notifier.Budget100); n != published || is90 != most || is100 != all {
			t.Fatalf("%s: %d are published, pending %q, %q; want %d, %q, %q", what, n, is90, is100, published, most, all)
		}
	}
	c.block(10, c.log("EpochOpened", map[string]any{"n": uint64(5), "startsAt": c.head.Timestamp, "endsAt": uint64(genesis + 7*24*hour), "dealBudget7": uint64(1000)}))
	c.block(10, event("EpochReserved", 1000), event("EpochReturned", 0))
	c.block(10, event("EpochReserved", 1000))
	c.block(10, event("EpochReturned", 899))
	settled()
	want("what was returned in time", 0, "", "")

	c.block(10, event("EpochReserved", 1000))
	settled()
	want("what is reserved", 1, "", "1000")
	c.block(10, event("EpochReturned", 899))
	c.applied()
	want("what was returned before it was sent", 1, "", "")
	c.revert()
	c.block(10)
	c.applied()
	want("what was not returned after all", 1, "", "1000")

	c.block(10, event("EpochReturned", 950))
	settled()
	want("what is left of it", 2, "950", "")
	c.block(10, event("EpochReserved", 1000))
	settled()
	want("what is reserved again, which is more than 90 %", 2, "", "1000")
	c.block(10, event("EpochReturned", 0))
	settled()
	want("what was returned", 2, "", "")
}

// pending is the alert of an hour before a deal's end as the sender would read it.
func (c *chain) pending(wallet common.Address, id int64) (a notifier.Alert, found bool) {
	c.t.Helper()
	return c.pendingAt(notifier.Address{Wallet: wallet, Channel: notifier.Email, Subject: uint256.NewInt(uint64(id)).Bytes32(), Stage: notifier.Before1})
}

func (c *chain) pendingAt(at notifier.Address) (a notifier.Alert, found bool) {
	c.t.Helper()
	view, err := c.node.View(c.t.Context(), topics.Partition(at.Wallet[:], c.cat.Partitions), nil)
	check(c.t, err)
	defer view.Close()
	a, _, found, err = notifier.Pending(view, at.Row())
	check(c.t, err)
	return a, found
}

// A tick tells how far the chain is: by the block that was applied, by those that only the ingester knows, and by when
// it said so. Where nothing new is confirmed, the last one comes again.
func TestTicksTellHowFarTheChainIs(t *testing.T) {
	c := newChain(t, 2)
	want := func(what string, is func(notifier.Tick) bool) {
		t.Helper()
		polltest.Until(t, what, func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return !slices.ContainsFunc(c.came, func(came ticked) bool {
				return len(came.of) < len(c.came) || slices.ContainsFunc(slices.Collect(maps.Values(came.of)), func(t notifier.Tick) bool { return !is(t) })
			})
		})
	}
	for range 5 {
		c.block(10)
	}
	want("all tell of the head", func(t notifier.Tick) bool {
		return t.Time == c.back(2).Timestamp && t.Applied == c.head.Timestamp && t.Head == c.head.Timestamp
	})
	c.tip = c.head.Number + facts.TickBlocks + 1000
	c.block(2 * facts.TickBlocks)
	want("all tell of a head that they do not know", func(t notifier.Tick) bool {
		return t.Applied == c.head.Timestamp && t.Head == c.back(2).Timestamp+c.tip-c.back(2).Number // a block a second, as of those that are confirmed
	})
	c.tip, c.ago = 0, -2*time.Minute // two minutes later
	at := time.Now()
	c.stands(c.last.Safe, c.last.Finalized)
	want("all tell that nothing has changed", func(t notifier.Tick) bool {
		return t.Time == c.back(2).Timestamp && time.UnixMilli(t.Written).After(at.Add(time.Minute))
	})
}

// By the time of a block that a node made up nothing is late: how late it is one knows by the blocks that are
// confirmed, and by how many there are since.
func TestATimeThatIsMadeUp(t *testing.T) {
	for _, policy := range []facts.Policy{facts.Safe, facts.Finalized} {
		t.Run(string(policy), func(t *testing.T) {
			c := newChainOf(t, 2, policy)
			head := func() (latest uint64) {
				t.Helper()
				c.applied()
				for p := range c.cat.Partitions {
					view, err := c.node.View(t.Context(), p, nil)
					check(t, err)
					clock, err := notifier.ReadClock(view)
					check(t, err)
					view.Close()
					latest = max(latest, clock.Head)
				}
				return latest
			}
			for range c.lag() + 4 {
				c.block(10)
			}
			if got := head(); got != c.head.Timestamp {
				t.Fatalf("the head is at %d, want %d", got, c.head.Timestamp)
			}
			for range 2 {
				c.block(hour)
				if got := head(); got != c.back(1).Timestamp+10 {
					t.Errorf("the head is %d s after the last block that nobody made up, want 10", got-c.back(1).Timestamp)
				}
				c.revert()
			}
			// Once such a block is confirmed it is so late.
			c.block(hour)
			for range c.lag() {
				c.block(10)
			}
			if got := head(); got != c.head.Timestamp {
				t.Errorf("the head is at %d, want %d", got, c.head.Timestamp)
			}
		})
	}
}
