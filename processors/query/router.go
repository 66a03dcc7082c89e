package query

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

// Config of a Router. Partitions is required, and Local or Owners.
type Config struct {
	Partitions int32
	Local      Source               // the partitions of this process, asked by a direct call; nil: none
	Instance   string               // this process in the owners topic: what it says there is passed over
	Owners     func() (Feed, error) // opens the owners topic at its start; nil: there is nobody else
	Timeout    time.Duration        // of a call to another node. 1 s
	Patience   time.Duration        // of a read while holders move or disagree. 500 ms
	Interval   time.Duration        // until a node that did not tell its watermarks is asked again. 50 ms
	Registerer prometheus.Registerer
	Logger     *zap.Logger

	// Deployment says which pool and which tokens are the token layer's, and which holds the positions.
	// Zero: there is neither.
	Deployment contracts.Deployment
}

func (c *Config) setDefaults() {
	if c.Timeout == 0 {
		c.Timeout = time.Second
	}
	if c.Patience == 0 {
		c.Patience = 500 * time.Millisecond
	}
	if c.Interval == 0 {
		c.Interval = 50 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
}

// Validate reports every fault at once.
func (c *Config) Validate() error {
	var faults []error
	if c.Partitions < 1 || c.Partitions > maxPartitions {
		faults = append(faults, fmt.Errorf("partitions: %d is not within 1-%d", c.Partitions, maxPartitions))
	}
	if c.Local == nil && c.Owners == nil {
		faults = append(faults, errors.New("neither local partitions nor an owners topic"))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"timeout", c.Timeout}, {"patience", c.Patience}, {"interval", c.Interval}} {
		if d.d < 0 {
			faults = append(faults, fmt.Errorf("%s: %s is negative", d.name, d.d))
		}
	}
	return errors.Join(faults...)
}

// Router implements Reader over the nodes that hold partitions, this process among them.
//
// Invariants:
//  1. An answer is true as of one block, number and hash, on every partition that it spans.
//  2. No part of an answer comes from an older incarnation than the router knows of.
//  3. Within an incarnation, an answer is never further back than one that was given before it was asked
//     for: a standby that is behind is not asked to fill in for its owner.
//  4. A read ends: rounds, waits and remote calls are all bounded.
type Router struct {
	cfg     Config
	nodes   *nodes
	all     []int32
	metrics *metrics
	guess   guess
}

// NewRouter makes a router. Where there are other nodes, it finds them once it runs.
func NewRouter(cfg Config) (*Router, error) {
	cfg.setDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	r := &Router{cfg: cfg, nodes: newNodes(cfg.Partitions, cfg.Local), metrics: newMetrics(cfg.Registerer)}
	for p := range cfg.Partitions {
		r.all = append(r.all, p)
	}
	return r, nil
}

var _ Reader = (*Router)(nil)

// Watermarks is how far each partition is, ascending by partition, without a network: local ones as they
// are, those of other nodes as they told when they last moved. ErrUnavailable: a partition has no holder.
func (r *Router) Watermarks() ([]Watermark, error) {
	marks, ok := r.nodes.watermarks()
	if !ok {
		return nil, ErrUnavailable
	}
	return marks, nil
}

// Lowest is the watermark that is least far, without a network: all partitions can answer as of its
// block, or could until lately. ErrUnavailable: a partition has no holder.
func (r *Router) Lowest() (Watermark, error) {
	marks, err := r.Watermarks()
	if err != nil {
		return Watermark{}, err
	}
	return lowestOf(marks), nil
}

// Head implements Reader, without a network.
func (r *Router) Head(context.Context) (Head, error) {
	marks, err := r.Watermarks()
	if err != nil {
		return Head{}, err
	}
	h := Head{Indexed: lowestOf(marks).At, ObservedAt: marks[0].ObservedAt}
	for _, w := range marks {
		h.Latest = max(h.Latest, w.Latest)
		if w.ObservedAt.Before(h.ObservedAt) {
			h.ObservedAt = w.ObservedAt
		}
	}
	return h, nil
}

// Deal implements Reader.
func (r *Router) Deal(ctx context.Context, id *uint256.Int) (Answer[DealWithBids], error) {
	entity := contracts.Entity{Family: contracts.FamilyDeal, ID: id.Bytes32()}
	from := r.partitionOf(entity)
	a, err := r.read(ctx, from, &request{Op: opDeal, Deal: entity.ID})
	if err != nil {
		return Answer[DealWithBids]{}, err
	}
	if len(a.Items) == 0 {
		return Answer[DealWithBids]{At: a.At}, ErrNotFound
	}
	d, err := decodeDeal(a.Items[0])
	return Answer[DealWithBids]{At: a.At, Value: d, From: from}, err
}

// Listings implements Reader.
func (r *Router) Listings(ctx context.Context, q ListingsQuery) (Answer[Page[DealWithBids]], error) {
	req := &request{Op: opListings, Sort: q.Sort, After: q.After, Limit: q.Limit + 1}
	req.Lane, req.HasLane = optional(q.Lane)
	req.Term, req.HasTerm = optional(q.Term)
	req.Asset, req.HasAsset = optional(q.Asset)
	return readPage(ctx, r, req, decodeListedDeal)
}

// Deals implements Reader.
func (r *Router) Deals(ctx context.Context, q DealsQuery) (Answer[Page[DealWithBids]], error) {
	req := &request{Op: opDeals, After: q.After, Limit: q.Limit + 1}
	req.Wallet, req.HasWallet = optional(q.Wallet)
	req.State, req.HasState = optional(q.State)
	return readPage(ctx, r, req, decodeListedDeal)
}

// Assets implements Reader.
func (r *Router) Assets(ctx context.Context, q AssetsQuery) (Answer[Page[topics.Asset]], error) {
	req := &request{Op: opAssets, After: q.After, Limit: q.Limit + 1}
	req.Lane, req.HasLane = optional(q.Lane)
	return readPage(ctx, r, req, decodeAsset)
}

// Balances implements Reader: fungible assets ascending by address, each followed by its NFTs.
func (r *Router) Balances(ctx context.Context, account common.Address) (Answer[[]topics.Balance], error) {
	entity := contracts.Entity{Family: contracts.FamilyAccount, ID: common.BytesToHash(account[:])}
	from := r.partitionOf(entity)
	a, err := r.read(ctx, from, &request{Op: opBalances, Account: account})
	if err != nil {
		return Answer[[]topics.Balance]{}, err
	}
	all, err := page(a.Items, len(a.Items), decodeBalance)
	return Answer[[]topics.Balance]{At: a.At, Value: all.Items, From: from}, err
}

func (r *Router) partitionOf(e contracts.Entity) []int32 {
	p := topics.Partition(e.Key(), r.cfg.Partitions)
	return r.all[p : p+1]
}

func readPage[T any](ctx context.Context, r *Router, req *request, decode func(item) (T, error)) (Answer[Page[T]], error) {
	a, err := r.read(ctx, r.all, req)
	if err != nil {
		return Answer[Page[T]]{}, err
	}
	p, err := page(a.Items, req.Limit-1, decode)
	return Answer[Page[T]]{At: a.At, Value: p}, err
}

func optional[T any](v *T) (T, bool) {
	if v == nil {
		var zero T
		return zero, false
	}
	return *v, true
}

// outcome is a label: what a read came to.
func outcome(a *answer, op op, err error) string {
	switch {
	case err == nil && op == opDeal && len(a.Items) == 0:
		return "not_found"
	case err == nil:
		return "ok"
	case errors.Is(err, ErrUnavailable):
		return "unavailable"
	default:
		return "error"
	}
}

// oneBlock says whether all answers are of the same block, and which is the lowest.
func oneBlock(answers []*answer) (lowest topics.BlockRef, same bool) {
	lowest, same = answers[0].At, true
	for _, a := range answers[1:] {
		same = same && a.At.Hash == lowest.Hash
		if a.At.Number < lowest.Number {
			lowest = a.At
		}
	}
	return lowest, same
}

// joined merges the answers of several nodes into one.
func joined(answers []*answer, limit int) *answer {
	all := answers[0]
	for _, a := range answers[1:] {
		all = &answer{
			At:         all.At,
			Watermarks: slices.Concat(all.Watermarks, a.Watermarks),
			Items:      merge(nil, all.Items, a.Items, limit, func(it *item) []byte { return it.key }),
		}
	}
	return all
}
