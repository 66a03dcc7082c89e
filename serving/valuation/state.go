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
	"github.com/lienstream/lienstream/topics"
)

// state is everything that answers depend on as of one block: what the pipeline has of the pools, and what only the chain
// tells. It does not change, apart from what is read of it on demand and kept with it.
type state struct {
	at         topics.BlockRef
	taken      time.Time
	cfg        *Config
	pools      []*pool // ascending by ID
	assets     map[common.Address]*topics.Asset
	usdgPaused bool
	weth       common.Address

	mu     sync.Mutex
	fees   map[uint256.Int]*feesOf // by token ID
	tokens map[common.Address]*told
}

// pool is a pool with its reference price and its depth.
type pool struct {
	query.PoolState
	amm       ammv4.Pool
	growth    ammv4.FeeGrowth
	reference int32  // the time-weighted median tick
	history   uint64 // seconds of the window for which there is a price
	depth     [2]uint256.Int
}

// keeper keeps the state of the latest block and shares it among all requests.
//
// Invariants:
//  1. What is told of the chain is read at the very block, number and hash, that the pipeline's state is of.
//  2. One read of a block is under way at most, whoever asks for it.
//  3. A state older than the latest block answers for Config.MaxLag at most, and not where the chain fell back.
type keeper struct {
	cfg     *Config
	reader  query.Reader
	chain   *chainReader
	metrics *metrics

	mu     sync.Mutex
	last   *state
	asked  time.Time
	flight *flight
}

// flight is a read under way.
type flight struct {
	done  chan struct{}
	state *state
	err   error
}

// current is the state to answer from. Its error is one that callers may see.
func (k *keeper) current(ctx context.Context) (*state, error) {
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

// fellBack says that the chain is shorter than it was.
func (k *keeper) fellBack(ctx context.Context, s *state) bool {
	head, err := k.reader.Head(ctx)
	return err != nil || head.Indexed.Number < s.at.Number
}

// renew reads the latest block's state, or waits for who already does. The read outlives its caller: others wait
// for it too.
func (k *keeper) renew(ctx context.Context) (*state, error) {
	k.mu.Lock()
	f := k.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		k.flight = f
		go k.fly(context.WithoutCancel(ctx), f)
	}
	k.mu.Unlock()
	select {
	case <-f.done:
		return f.state, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (k *keeper) fly(ctx context.Context, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.ReadTimeout)
	defer cancel()
	started := time.Now()
	f.state, f.err = k.read(ctx)
	k.metrics.observe(f.err, time.Since(started))
	k.mu.Lock()
	if f.err == nil {
		k.last = f.state
	}
	k.flight = nil
	k.mu.Unlock()
	close(f.done)
}

// read reads a block. One that the node does not have is read again a little later: it is on its way there, or gone.
func (k *keeper) read(ctx context.Context) (*state, error) {
	for {
		answer, err := k.reader.Exchange(ctx, query.ExchangeQuery{
			Seconds: uint64(k.cfg.Reference.Window / time.Second), Hours: uint64(k.cfg.Haircut.History / time.Second),
		})
		if err != nil {
			return nil, fmt.Errorf("read the pools: %w", err)
		}
		s, err := k.build(ctx, &answer)
		if err == nil || !errors.Is(err, errBlockGone) {
			return s, err
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

func (k *keeper) build(ctx context.Context, answer *query.Answer[query.Exchange]) (*state, error) {
	s := &state{
		at: answer.At, taken: time.Now(), cfg: k.cfg, assets: make(map[common.Address]*topics.Asset),
		fees: make(map[uint256.Int]*feesOf), tokens: make(map[common.Address]*told),
	}
	for i := range answer.Value.Assets {
		a := &answer.Value.Assets[i]
		s.assets[a.Token] = a
	}
	for i := range answer.Value.Pools {
		p := &pool{PoolState: answer.Value.Pools[i]}
		p.amm = ammv4.Pool{
			SqrtPriceX96: p.SqrtPriceX96, Tick: p.Tick, Liquidity: p.Liquidity, LPFee: p.Fee,
			TickSpacing: p.TickSpacing, Ticks: p.Ticks,
		}
		s.pools = append(s.pools, p)
	}
	if err := k.chain.complete(ctx, s); err != nil {
		return nil, err
	}
	window := uint64(k.cfg.Reference.Window / time.Second)
	for _, p := range s.pools {
		p.reference, p.history = medianTick(p.Seconds, s.at.Timestamp, window)
		p.depth = depthOf(&p.amm)
	}
	return s, nil
}

// run reads ahead while there are requests.
func (k *keeper) run(ctx context.Context) error {
	tick := time.NewTicker(k.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		k.mu.Lock()
		wanted := time.Since(k.asked) < k.cfg.IdleAfter && k.flight == nil && (k.last == nil || !k.reader.Current(k.last.at, nil))
		k.mu.Unlock()
		if wanted {
			_, _ = k.renew(ctx) // requests that need it learn of the error themselves
		}
		k.metrics.aged(k.age())
	}
}

// age is how long ago the state was read.
func (k *keeper) age() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last == nil {
		return 0
	}
	return time.Since(k.last.taken)
}

// byID is the pool of an ID, nil where it is none of the allowed.
func (s *state) byID(id common.Hash) *pool {
	for _, p := range s.pools {
		if p.ID == id {
			return p
		}
	}
	return nil
}
