package support

import (
	"context"
	"errors"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/serving/x402"
)

// paced is a chain whose blocks come at a pace: it has the newest headers, as nodes do.
type paced struct {
	*ethclient.Client
	blockTime time.Duration
	head      uint64
	asked     int
	oldest    uint64 // that was asked for
	fails     bool
}

const paceFrom = 1_700_000_000 // of block 0

func (p *paced) HeaderByNumber(_ context.Context, number *big.Int) (*types.Header, error) {
	if p.fails {
		return nil, errors.New("busy")
	}
	if number == nil {
		number = new(big.Int).SetUint64(p.head)
	}
	p.asked++
	p.oldest = min(p.oldest, number.Uint64())
	return &types.Header{Number: number, Time: p.timeOf(number.Uint64())}, nil
}

func (p *paced) timeOf(number uint64) uint64 {
	return paceFrom + uint64(time.Duration(number)*p.blockTime/time.Second)
}

// A search goes back as long as an authorization may have been used, however fast blocks come, and hardly longer.
func TestASearchStartsEarlyEnough(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		blockTime time.Duration
		head      uint64
	}{
		{100 * time.Millisecond, 40_000_000},
		{250 * time.Millisecond, 1_000_000},
		{time.Second, 1_000_000},
		{2 * time.Second, 35_000_000},
		{12 * time.Second, 20_000_000},
		{time.Second, 100}, // it is younger than the search is long
		{time.Second, 0},
	} {
		chain := &paced{blockTime: c.blockTime, head: c.head, oldest: c.head}
		deps := w.deps(nil)
		deps.Chain = chain
		for name, now := range map[string]time.Duration{"our clock is behind": -clockMargin / 2, "ahead": clockMargin / 2} {
			deps.Now = func() time.Time { return time.Unix(int64(chain.timeOf(c.head)), 0).Add(now) }
			s, err := New(w.cfg, deps, zap.NewNop(), w.metrics.New())
			check(t, err)
			chain.asked = 0
			check(t, s.findFrom(t.Context()))
			from := s.fromBlock()
			needed := deps.Now().Add(-lateLimit - time.Duration(w.cfg.Payment.MaxTimeoutSeconds)*time.Second)
			if got := time.Unix(int64(chain.timeOf(from)), 0); from > 0 && got.After(needed) || needed.Sub(got) > 2*clockMargin && c.head > 100 {
				t.Errorf("blocks of %s, %s: it starts at %s, needed is %s", c.blockTime, name, got, needed)
			}
			if far := chain.timeOf(c.head) - chain.timeOf(chain.oldest); chain.asked > 64 || far > uint64(4*s.lookBack()/time.Second) {
				t.Errorf("blocks of %s: %d questions, back to %d s ago", c.blockTime, chain.asked, far)
			}
			chain.fails = true
			if err := s.findFrom(t.Context()); err == nil || s.fromBlock() != from {
				t.Errorf("a node that fails moved it to %d: %v", s.fromBlock(), err)
			}
			chain.fails = false
		}
	}
}

// A charged client gets the ticket for as long as late payments are looked up, also where a block comes each second.
func TestChargedAnHourAgo(t *testing.T) {
	if testing.Short() {
		t.Skip("some thousand blocks")
	}
	w := newWorld(t)
	signed := w.pay(w.chain.Key("payer"), "an hour ago", func(a *x402.Authorization) { a.ValidBefore = uint64(w.clock().Unix()) + 120 })
	w.submit(signed.Calldata())
	for uint64(w.clock().Unix()) < signed.ValidBefore+uint64(lateLimit.Seconds())-60 {
		_, err := w.chain.Mine(t.Context())
		check(t, err)
	}
	w.mine()
	deps := w.deps(w.relayer("relayer"))
	deps.Now = w.clock
	s := w.start(deps)
	s.post(w.header(signed), body("An hour ago")).created(t)
	if n := w.charges(signed.From); n != 1 {
		t.Errorf("charged %d times", n)
	}
}
