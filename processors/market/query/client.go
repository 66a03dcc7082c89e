package query

import (
	"context"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
)

// Client implements Reader over the nodes that hold the market's partitions.
type Client struct {
	*read.Router
	market   market
	manager  common.Address // of positions
	last     lastParams
	filling  chan struct{} // a slot for the read of past days
	over     chan struct{} // closed when Run has ended
	room     int           // of windows in an answer
	many     int           // open positions are read page by page beyond these
	gathered int           // positions of a history
}

// NewClient makes a client of the market. The deployment names the token layer's pool and tokens, and the
// contract of positions; zero: there are none. Run finds other nodes.
func NewClient(cfg Config, deployment contracts.Deployment) (*Client, error) {
	nodes, err := read.NewRouter(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{Router: nodes, market: marketOf(deployment), manager: deployment.PositionManager, filling: make(chan struct{}, 1), over: make(chan struct{}), room: maxRoom, many: maxOpenPositions, gathered: maxGathered}, nil
}

// Run finds other nodes until ctx is done. Then it ends a read of past days that goes on without a caller.
func (c *Client) Run(ctx context.Context) error {
	defer close(c.over)
	return c.Router.Run(ctx)
}

var _ Reader = (*Client)(nil)

// Listings implements Reader.
func (c *Client) Listings(ctx context.Context, q ListingsQuery) (Answer[Page[DealWithBids]], error) {
	return readPage(ctx, c, opListings, &q, q.Limit, decodeDeal)
}

// Deals implements Reader.
func (c *Client) Deals(ctx context.Context, q DealsQuery) (Answer[Page[DealWithBids]], error) {
	return readPage(ctx, c, opDeals, &q, q.Limit, decodeDeal)
}

// Assets implements Reader.
func (c *Client) Assets(ctx context.Context, q AssetsQuery) (Answer[Page[topics.Asset]], error) {
	return readPage(ctx, c, opAssets, &q, q.Limit, decodeAsset)
}

func (c *Client) partitionOf(e contracts.Entity) []int32 {
	p := c.PartitionOf(e.Key())
	return c.All()[p : p+1]
}

func (c *Client) accountPartition(a common.Address) int32 {
	return c.PartitionOf(contracts.AccountEntity(a).Key())
}

func (c *Client) poolPartition(id common.Hash) int32 {
	return c.PartitionOf(contracts.PoolEntity(id).Key())
}

// readPage requests one item more than the page: it tells whether the list continues.
func readPage[T any](ctx context.Context, r operationReader, op *read.Operation, q read.Query, limit int, decode func(read.Item) (T, error)) (Answer[Page[T]], error) {
	a, err := r.Read(ctx, read.Request{Operation: op, Query: q, Limit: limit + 1})
	if err != nil {
		return Answer[Page[T]]{}, err
	}
	p, err := read.PageOf(a.Items, limit, decode)
	return Answer[Page[T]]{At: a.Block, Value: p}, err
}
