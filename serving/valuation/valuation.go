// Package valuation is the HTTP service for values of collateral: prices from the chain's pools alone, ranges,
// quotes and facts, each as of one block that it names, and a refusal if a pool's price may be manipulated. It
// must keep nothing that it could not read again from the chain. Where a price is not known it refuses; where only
// its deviation is not known, it takes the configured one.
package valuation

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

//go:embed openapi.yaml
var description []byte

// Service is the valuation service.
type Service struct {
	cfg     Config
	reader  query.Reader
	chain   *chainReader
	states  *stateCache
	metrics *metrics
	api     *httpapi.API
	server  *httpapi.Server
	chainID []string // value of the header
	now     func() time.Time
}

// New returns the service. It listens in Run. The caller runs the chain client.
func New(cfg Config, reader query.Reader, client *chain.Client, logger *zap.Logger, reg prometheus.Registerer) (*Service, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration of the valuation service: %w", err)
	}
	described, err := httpapi.DescriptionRoutes(description)
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, reader: reader, metrics: newMetrics(reg), now: time.Now,
		chainID: []string{strconv.FormatUint(cfg.Deployment.ChainID, 10)},
	}
	s.chain = &chainReader{client: client, cfg: &s.cfg, metrics: s.metrics}
	s.states = &stateCache{cfg: &s.cfg, reader: reader, chain: s.chain, metrics: s.metrics}
	logger = logger.Named("valuation")
	s.api = httpapi.New(cfg.HTTP, httpapi.Options{
		Service: "valuation", Deployment: s.chainID[0],
		Expose:     []string{"X-Chain-Id", "X-Indexed-Block", "X-Indexed-Block-Hash"},
		Stamp:      s.stamp,
		Routes:     slices.Concat(described, s.routes()),
		Logger:     logger,
		Registerer: reg,
	})
	s.server = httpapi.NewServer(cfg.HTTP, s.api, logger)
	return s, nil
}

func (s *Service) routes() []httpapi.Route {
	get := func(path string, handle httpapi.Handler, query ...string) httpapi.Route {
		return httpapi.Route{Method: http.MethodGet, Path: path, Handle: chain.Counted(s.metrics.requests.WithLabelValues(path), handle), Query: query}
	}
	return []httpapi.Route{
		get("/deals/{id}/valuation", s.dealValuation),
		get("/assets/{token}/value", s.assetValue),
		get("/assets/{token}/facts", s.assetFacts),
		get("/assets/{token}/prices", s.assetPrices),
		get("/pools/{pool}/liquidity", s.poolLiquidity),
		get("/range/suggest", s.rangeSuggest, "pool", "term"),
		get("/quote/reinvest", s.quoteReinvest, "amount", "tickLower", "tickUpper", "route", "payAsset", "slippageBps"),
		get("/quote/entry", s.quoteEntry, "eth"),
		get("/quote/payout", s.quotePayout, "usdg", "to", "slippageBps"),
		get("/health", s.health),
	}
}

// Run serves until ctx is done, then drains.
func (s *Service) Run(ctx context.Context) error {
	defer s.states.close()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.server.Run(ctx) })
	g.Go(func() error { return s.states.run(ctx) })
	return g.Wait()
}

// Ready is nil while the service accepts requests, once the index and the chain have agreed on a block. Requests check
// its age.
func (s *Service) Ready(ctx context.Context) error {
	return s.server.ReadyOnce(func() error {
		_, err := s.states.current(ctx)
		return err
	})
}

// state is the input of an answer; the headers name its block, and the response is cached until there is a
// later one.
func (s *Service) state(ctx context.Context, res *httpapi.Response) (*state, error) {
	st, err := s.states.current(ctx)
	if err != nil {
		return nil, err
	}
	asOf(res.Header, st.at)
	if err := s.fresh(st.at); err != nil {
		return nil, s.refused(err)
	}
	return st, nil
}

func (s *Service) fresh(at topics.BlockRef) error {
	if s.cfg.MaxAge > 0 {
		if age := s.now().Unix() - int64(at.Timestamp); age > int64(s.cfg.MaxAge/time.Second) {
			return refuse(reasonStale, "the state is of block %d, which is %d s old", at.Number, age)
		}
	}
	return nil
}

// answer writes a body, which is cached until there is a later block, or its own is too old.
func (s *Service) answer(res *httpapi.Response, st *state, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	res.Body = append(res.Body, raw...)
	at := st.at // not st: the cache keeps the function, and the state with it
	res.FreshWhile = func() bool { return s.fresh(at) == nil && s.reader.Current(at, nil) }
	return nil
}

func asOf(h http.Header, at topics.BlockRef) {
	h["X-Indexed-Block"] = []string{strconv.FormatUint(at.Number, 10)}
	h["X-Indexed-Block-Hash"] = []string{at.Hash.Hex()}
}

// stamp sets the chain's headers on every response, as the indexer does.
func (s *Service) stamp(ctx context.Context, h http.Header) {
	h["X-Chain-Id"] = s.chainID
	if h["X-Indexed-Block"] != nil {
		return
	}
	if head, err := s.reader.Head(ctx); err == nil {
		asOf(h, head.Indexed)
	}
}

// The service's own codes, besides priceUnreliable.
var (
	dealNotFound  = httpapi.Code{Name: "DEAL_NOT_FOUND", Status: http.StatusNotFound}
	assetNotFound = httpapi.Code{Name: "ASSET_NOT_FOUND", Status: http.StatusNotFound}
)

// retryRefused is the Retry-After of a refused price.
const retryRefused = 5 * time.Second

// refused maps a refused price to an API error.
func (s *Service) refused(err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		s.metrics.refusals.WithLabelValues(r.reason).Inc()
		return &httpapi.Error{Code: priceUnreliable, Message: r.message, RetryAfter: retryRefused}
	}
	return upstream(err)
}

// upstream maps an error of the index or the chain to an API error.
func upstream(err error) error {
	retry := func(message string) error {
		return &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: message, RetryAfter: time.Second}
	}
	_, disagree := errors.AsType[*chain.DisagreementError](err)
	_, refused := errors.AsType[*chain.NodeError](err)
	_, reverted := errors.AsType[*chain.RevertError](err) // the protocol's contracts do not revert
	switch {
	case errors.Is(err, query.ErrUnavailable):
		return retry("no processor can answer now, ask again shortly")
	case errors.Is(err, errDiffers):
		return retry("the chain and the index disagree about a pool, ask again shortly")
	case errors.Is(err, chain.ErrDiffer):
		return retry("nodes of the chain disagree, ask again shortly")
	case errors.Is(err, chain.ErrUnavailable), errors.Is(err, chain.ErrBlockGone), disagree,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return retry("the chain cannot be read now, ask again shortly")
	case refused, reverted, errors.Is(err, chain.ErrUnsupported):
		return retry("a node of the chain refuses to answer, ask again shortly")
	}
	if _, ok := errors.AsType[*chain.ChainError](err); ok {
		return retry("the node is on another chain")
	}
	return err
}

// healthBody is the body of /health.
type healthBody struct {
	OK      bool   `json:"ok"`
	ChainID uint64 `json:"chainId"`
	Block   uint64 `json:"block"`
}

// health has the same shape whether healthy or not.
func (s *Service) health(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	st, err := s.states.current(ctx)
	if err != nil {
		return err
	}
	asOf(res.Header, st.at)
	ok := s.fresh(st.at) == nil
	if !ok {
		res.Status = http.StatusServiceUnavailable
		res.RetryAfter(time.Second)
	}
	res.SetHeader("Cache-Control", "no-store")
	raw, err := json.Marshal(healthBody{OK: ok, ChainID: s.cfg.Deployment.ChainID, Block: st.at.Number})
	res.Body = append(res.Body, raw...)
	return err
}
