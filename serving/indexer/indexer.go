// Package indexer is the HTTP service of the chain's data: the market, its token layer and its pool, each
// response as of one block that its headers name, a stream of changes, and a web page. It must not know where
// rows are stored nor how they are computed.
package indexer

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

//go:embed openapi.yaml
var description []byte

// Config of the indexer. Start from DefaultConfig.
type Config struct {
	HTTP    httpapi.Config
	ChainID uint64

	// Beyond one of these limits /health/indexer is 503 and the node is not ready. Other requests are still
	// answered, as of the block that they name.
	MaxLagBlocks uint64        // of the lowest watermark behind the chain's head
	MaxHeadAge   time.Duration // since the ingester last saw the chain
	MaxBlockAge  time.Duration // since the timestamp of the indexed block; 0: no limit, if the chain may stand still or has its own clock

	OutboxURL   string // URL of the SMTP sink's page, for the page's link; empty: none
	ExplorerURL string // block explorer for the page's links, with /tx/<hash> and /address/<address>; empty: none

	// URLs of these services for browsers, for data on the page; empty: not shown.
	AgentURL, ValuationURL string

	MaxStreamAge time.Duration // after which a stream is closed; its client reconnects, perhaps to another node
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	port := httpapi.DefaultConfig(":42069")
	port.Client.Share = float64(runtime.GOMAXPROCS(0)) / 16 // its handlers compute, those of other services wait for a chain
	return Config{
		HTTP:         port,
		ChainID:      contracts.DefaultChainID,
		MaxLagBlocks: query.DefaultMaxLagBlocks,
		MaxHeadAge:   query.DefaultMaxHeadAge,
		MaxBlockAge:  query.DefaultMaxHeadAge,
		MaxStreamAge: time.Hour,
	}
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	faults := []error{c.HTTP.Validate()}
	if c.ChainID == 0 {
		faults = append(faults, errors.New("chain-id: is 0"))
	}
	for _, to := range []struct{ name, url string }{{"explorer-url", c.ExplorerURL}, {"page-agent-url", c.AgentURL}, {"page-valuation-url", c.ValuationURL}} {
		if u, err := url.Parse(to.url); to.url != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			faults = append(faults, fmt.Errorf("%s: %q is not an http or https URL", to.name, to.url))
		}
	}
	if c.MaxHeadAge <= 0 {
		faults = append(faults, fmt.Errorf("max-head-age: %s is not positive", c.MaxHeadAge))
	}
	if c.MaxBlockAge < 0 {
		faults = append(faults, fmt.Errorf("maximum age of the indexed block: %s is negative", c.MaxBlockAge))
	}
	if c.MaxStreamAge <= 0 {
		faults = append(faults, fmt.Errorf("stream-max-age: %s is not positive", c.MaxStreamAge))
	}
	return errors.Join(faults...)
}

// Indexer is the service.
type Indexer struct {
	cfg     Config
	reader  query.Reader
	ids     *eventIDs
	feed    *feed
	resumes resumes
	metrics *metrics
	api     *httpapi.API
	server  *httpapi.Server
	chainID []string // value of the header
	named   atomic.Pointer[named]
	index   []byte // body of GET / for programs
	page    []byte // body of GET / for browsers
	policy  string // content security policy of the page

	beginWait time.Duration // of a stream, for its first block
}

// New returns the service. It listens in Run.
func New(cfg Config, reader query.Reader, logger *zap.Logger, reg prometheus.Registerer) (*Indexer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of the indexer: %w", err)
	}
	described, err := httpapi.DescriptionRoutes(description)
	if err != nil {
		return nil, err
	}
	logger = logger.Named("indexer")
	x := &Indexer{
		cfg:     cfg,
		reader:  reader,
		metrics: newMetrics(reg),
		chainID: []string{strconv.FormatUint(cfg.ChainID, 10)},

		beginWait: beginWait,
	}
	x.ids = &eventIDs{httpapi.NewSigner(cfg.HTTP.CursorSecret, "stream of chain "+x.chainID[0])}
	x.feed = newFeed(reader, x.ids, x.metrics, logger)
	if x.page, err = newPage(&cfg); err != nil {
		return nil, err
	}
	x.policy = newPolicy(&cfg)
	files, err := pageRoute()
	if err != nil {
		return nil, err
	}
	routes := x.routes()
	x.index = appendIndex(nil, cfg.ChainID, routes)
	routes = append(routes, httpapi.Route{Method: http.MethodGet, Path: "/", AnyQuery: true, Handle: x.root})
	x.api = httpapi.New(cfg.HTTP, httpapi.Options{
		Service:    "indexer",
		Deployment: x.chainID[0],
		Expose:     []string{"X-Chain-Id", "X-Indexed-Block", "X-Indexed-Block-Hash"},
		Allow:      []string{"Last-Event-ID"}, // of a stream that is read without EventSource
		MinBlock:   minBlock,
		Block:      x.block,
		Stamp:      x.stamp,
		Routes:     append(slices.Concat(described, routes), files),
		Logger:     logger,
		Registerer: reg,
	})
	x.server = httpapi.NewServer(cfg.HTTP, x.api, logger)
	return x, nil
}

// routes are the endpoints of the service.
func (x *Indexer) routes() []httpapi.Route {
	return slices.Concat([]httpapi.Route{
		x.read("/listings", x.listings, "lane", "term", "asset", "sort", "limit", "cursor"),
		x.read("/deals", x.deals, "wallet", "state", "limit", "cursor"),
		x.read("/deals/{id}", x.deal),
		x.read("/portfolio/{wallet}", x.portfolio),
		x.read("/rewards/{wallet}", x.rewards),
		x.read("/positions/{wallet}", x.stakes, "limit", "cursor"),
		x.read("/wallet/{address}/positions", x.positions, "limit", "cursor"),
		x.read("/assets", x.assets, "lane", "limit", "cursor"),
		x.read("/deals/{id}/bids", x.bids, "limit", "cursor"),
		x.read("/assets/{token}/deals", x.assetDeals, "limit", "cursor"),
		x.read("/deals/{id}/drips", x.dealDrips, "limit", "cursor"),
		x.read("/portfolio/{wallet}/bids", x.walletBids, "limit", "cursor"),
		x.read("/portfolio/{wallet}/balances", x.walletBalances, "limit", "cursor"),
		x.read("/rewards/{wallet}/drips", x.walletDrips, "limit", "cursor"),
	}, x.tokenLayerRoutes(), []httpapi.Route{
		x.read("/stats", x.stats),
		x.read("/stats/history", x.history, "days"),
		get("/stream", x.stream, "with"),
		get("/pipeline", x.pipeline),
		get("/health/indexer", x.health),
	})
}

func get(path string, handle httpapi.Handler, query ...string) httpapi.Route {
	return httpapi.Route{Method: http.MethodGet, Path: path, Handle: handle, Query: query}
}

// read is a route that reads the index.
func (x *Indexer) read(path string, handle httpapi.Handler, query ...string) httpapi.Route {
	return get(path, x.indexed(handle), append(query, minBlock)...)
}

// minBlock is the query parameter with the least block that an answer may be as of.
const minBlock = "minBlock"

// indexed runs a handler once a block is indexed: before that, "not found" would be meaningless. With minBlock
// it waits for that block, so that a client sees the effect of its transaction through any node.
func (x *Indexer) indexed(handle httpapi.Handler) httpapi.Handler {
	return func(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
		if x.reader.Empty() {
			return &httpapi.Error{Code: staleIndexer, Message: "no block is indexed yet, ask again shortly", RetryAfter: time.Second}
		}
		if req.Declares(minBlock) {
			min := req.Query(minBlock).Block()
			if err := req.Err(); err != nil {
				return err
			}
			ctx = query.WithMinBlock(ctx, min)
		}
		return handle(ctx, req, res)
	}
}

// appendIndex appends the response of GET / for programs: links to the endpoints.
func appendIndex(b []byte, chainID uint64, routes []httpapi.Route) []byte {
	b = appendInteger(append(b, `{"service":"indexer"`...), "chainId", chainID)
	b = appendList(append(b, `,"endpoints":`...), routes, func(b []byte, r *httpapi.Route) []byte { return appendName(b, r.Path) })
	return append(b, `,"description":"/openapi.json"}`...)
}

// Run serves until ctx is done, then drains. Streams end at once: their clients reconnect elsewhere.
func (x *Indexer) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return x.server.Run(ctx) })
	g.Go(func() error { return x.feed.run(ctx) })
	return g.Wait()
}

// ServeHTTP serves without a port.
func (x *Indexer) ServeHTTP(w http.ResponseWriter, r *http.Request) { x.api.ServeHTTP(w, r) }

// Ready is nil while the service accepts requests and the index has been at the chain's head once. How old the head is
// does not count: a chain that stands, or a clock that is wrong, makes no answer untrue, and /health/indexer says it.
func (x *Indexer) Ready(ctx context.Context) error {
	return x.server.ReadyOnce(func() error {
		head, err := x.reader.Head(ctx)
		if err != nil {
			return fmt.Errorf("read the head: %w", err)
		}
		return x.behind(head)
	})
}

// named is a block and the values of the headers that name it. Nobody changes them.
type named struct {
	topics.BlockRef
	number, hash []string
}

// asOf sets the headers that name the answer's block, which is nearly always that of the answer before.
func (x *Indexer) asOf(h http.Header, at topics.BlockRef) {
	n := x.named.Load()
	if n == nil || n.Number != at.Number || n.Hash != at.Hash {
		n = &named{at, []string{strconv.FormatUint(at.Number, 10)}, []string{at.Hash.Hex()}}
		x.named.Store(n)
	}
	h["X-Indexed-Block"], h["X-Indexed-Block-Hash"] = n.number, n.hash
}

// answered sets the headers for an answer, and allows caching until there is a later block.
func answered[T any](x *Indexer, res *httpapi.Response, answer *query.Answer[T]) {
	x.asOf(res.Header, answer.At)
	at, from := answer.At, answer.From // without the answer itself, which may be large
	res.Block, res.FreshWhile = at.Number, func() bool { return x.reader.Current(at, from) }
}

// block is the latest one that all partitions can be read as of; zero: unknown.
func (x *Indexer) block(ctx context.Context) uint64 {
	head, err := x.reader.Head(ctx)
	if err != nil {
		return 0
	}
	return head.Indexed.Number
}

// stamp sets the chain's headers on every response. A response without a block of its own (an error, the
// description) has the current block, if known.
func (x *Indexer) stamp(ctx context.Context, h http.Header) {
	h["X-Chain-Id"] = x.chainID
	if h["X-Indexed-Block"] != nil {
		return
	}
	if head, err := x.reader.Head(ctx); err == nil && head.Indexed.Hash != (common.Hash{}) {
		x.asOf(h, head.Indexed)
	}
}

// The indexer's own codes.
var (
	staleIndexer  = httpapi.Code{Name: "STALE_INDEXER", Status: http.StatusServiceUnavailable}
	dealNotFound  = httpapi.Code{Name: "DEAL_NOT_FOUND", Status: http.StatusNotFound}
	assetNotFound = httpapi.Code{Name: "ASSET_NOT_FOUND", Status: http.StatusNotFound}
)

// readError maps an error of the read API to an API error.
func readError(what string, err error) error {
	if errors.Is(err, query.ErrUnavailable) {
		return &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: "no processor can answer now, ask again shortly", RetryAfter: time.Second}
	}
	if errors.Is(err, query.ErrStale) {
		return &httpapi.Error{Code: staleIndexer, Message: "minBlock is not indexed yet, ask again shortly", RetryAfter: time.Second}
	}
	return fmt.Errorf("read %s: %w", what, err)
}
