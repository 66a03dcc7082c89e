package valuation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// state is the input of all answers as of one block: the index's pools and the chain's data. It is immutable,
// except for data that is read on demand and cached in it.
type state struct {
	at         topics.BlockRef
	since      uint64 // when the chain's last halt ended; 0: before the window of a reference
	reverts    uint64 // upper bound of blocks ever reverted before it; if there are more now, it may not be canonical
	taken      time.Time
	cfg        *Config
	pools      []*pool // ascending by ID
	pairs      pairs   // of pools
	assets     map[common.Address]*topics.Asset
	usdgPaused bool
	stopped    map[common.Address]bool // stocks that are paused or may be, where the index does not know
	weth       common.Address
	scales     map[common.Address]uint8        // decimals, by token that the registry does not know
	ahead      map[askedPosition][]uint256.Int // storage words of positions' fees, read with the pools

	mu     sync.Mutex
	fees   map[uint256.Int][2]uint256.Int // by token ID
	tokens map[common.Address]*contractFacts
}

// stateCache holds the latest block's state and shares it among all requests.
//
// Invariants:
//  1. The chain's data is read at the same block, number and hash, as the index's data.
//  2. At most one read of a block is in progress, for all requests.
//  3. A state older than the latest block is used for at most Config.MaxLag, and not after a reorg.
type stateCache struct {
	cfg     *Config
	reader  query.Reader
	chain   *chainReader
	metrics *metrics

	mu      sync.Mutex
	last    *state
	asked   time.Time
	reading *readInProgress
	closed  bool // no read may begin

	reads sync.WaitGroup
}

// readInProgress is a read of a block's state.
type readInProgress struct {
	done  chan struct{}
	state *state
	err   error
}

// current is the state to answer from. Its error is an API error.
func (k *stateCache) current(ctx context.Context) (*state, error) {
	k.mu.Lock()
	now := time.Now()
	k.asked = now
	last := k.last
	k.mu.Unlock()
	if last != nil && (k.reader.Current(last.at, nil) || now.Sub(last.taken) < k.cfg.MaxLag && !k.fellBack(ctx, last)) {
		return last, nil
	}
	s, err := k.renew(ctx)
	if err != nil {
		return nil, upstream(err)
	}
	return s, nil
}

// fellBack reports whether blocks were reverted since a state was read, perhaps its own.
func (k *stateCache) fellBack(ctx context.Context, s *state) bool {
	head, err := k.reader.Head(ctx)
	return err != nil || head.Reverts != s.reverts || head.Indexed.Number < s.at.Number
}

// renew reads the latest block's state, or waits for a read in progress. The read is not cancelled with its
// caller, because others wait for it too.
func (k *stateCache) renew(ctx context.Context) (*state, error) {
	k.mu.Lock()
	f := k.reading
	if f == nil {
		if k.closed {
			k.mu.Unlock()
			return nil, context.Canceled
		}
		f = &readInProgress{done: make(chan struct{})}
		k.reading = f
		k.reads.Go(func() { k.readFor(context.WithoutCancel(ctx), f) })
	}
	k.mu.Unlock()
	select {
	case <-f.done:
		return f.state, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// close lets no further read begin and waits for the one in progress, which may have no caller any more.
func (k *stateCache) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.reads.Wait()
}

func (k *stateCache) readFor(ctx context.Context, f *readInProgress) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.ReadTimeout)
	defer cancel()
	started := time.Now()
	f.state, f.err = k.read(ctx)
	k.metrics.observe(f.err, time.Since(started))
	k.mu.Lock()
	if f.err == nil {
		k.last = f.state
	}
	k.reading = nil
	k.mu.Unlock()
	close(f.done)
}

// read reads a block. If the node lacks the block, read tries again a little later: the block may arrive, or was
// reverted.
func (k *stateCache) read(ctx context.Context) (*state, error) {
	for {
		head, err := k.reader.Head(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the head: %w", err)
		}
		answer, err := k.reader.Exchange(ctx, query.ExchangeQuery{
			Seconds: uint64(k.cfg.Reference.Window / time.Second), Hours: uint64(k.cfg.Haircut.History / time.Second),
		})
		if err != nil {
			return nil, fmt.Errorf("read the pools: %w", err)
		}
		s, err := k.build(ctx, &answer, head.Reverts)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errBlockGone) {
			return nil, err
		}
		wait := time.NewTimer(k.cfg.Poll)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, err
		}
	}
}

func (k *stateCache) build(ctx context.Context, answer *query.Answer[query.Exchange], reverts uint64) (*state, error) {
	s := &state{
		at: answer.At, reverts: reverts, taken: time.Now(), cfg: k.cfg, assets: make(map[common.Address]*topics.Asset),
		ahead: make(map[askedPosition][]uint256.Int), fees: make(map[uint256.Int][2]uint256.Int), tokens: make(map[common.Address]*contractFacts),
	}
	for i := range answer.Value.Assets {
		a := &answer.Value.Assets[i]
		s.assets[a.Token] = a
	}
	for i := range answer.Value.Pools {
		p := &pool{PoolState: answer.Value.Pools[i]}
		p.amm = ammv4.Pool{
			SqrtPriceX96: p.SqrtPriceX96, Tick: p.Tick, Liquidity: p.Liquidity, LPFee: p.Fee,
			TickSpacing: p.TickSpacing, Ticks: p.Ticks, From: p.From, To: p.To,
		}
		p.below = p.Below
		s.pools = append(s.pools, p)
	}
	if err := k.chain.complete(ctx, s); err != nil {
		return nil, err
	}
	s.pairs = pairsOf(s.pools)
	window := uint64(k.cfg.Reference.Window / time.Second)
	if k.cfg.MaxGap > 0 {
		var err error
		if s.since, err = k.chain.withoutHalt(ctx, s, window); err != nil {
			return nil, err
		}
	}
	k.mu.Lock()
	last := k.last
	k.mu.Unlock()
	before := map[common.Hash]*pool{}
	if last != nil {
		for _, p := range last.pools {
			before[p.ID] = p
		}
	}
	for _, p := range s.pools {
		p.judge(s.at.Timestamp, window, before[p.ID])
	}
	s.settle()
	return s, nil
}

// run reads states in advance while there are requests.
func (k *stateCache) run(ctx context.Context) error {
	tick := time.NewTicker(k.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		k.mu.Lock()
		wanted := time.Since(k.asked) < k.cfg.IdleAfter && k.reading == nil && (k.last == nil || !k.reader.Current(k.last.at, nil))
		k.mu.Unlock()
		if wanted {
			_, _ = k.renew(ctx) // the next request gets the error
		}
		k.metrics.aged(k.age())
	}
}

// age is how long ago the state was read.
func (k *stateCache) age() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		return 0
	}
	return time.Since(k.last.taken)
}

// byID is the allowed pool with an ID; nil: there is none.
func (s *state) byID(id common.Hash) *pool {
	for _, p := range s.pools {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// allowedPool is byID, or an API error if there is none.
func (s *state) allowedPool(id common.Hash) (*pool, error) {
	if p := s.byID(id); p != nil {
		return p, nil
	}
	return nil, &httpapi.Error{Code: httpapi.NotFound, Message: `"pool" is not an allowed pool`}
}
