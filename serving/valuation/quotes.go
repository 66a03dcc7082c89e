package valuation

import (
	"context"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi"
)

const (
	defaultSlippageBps = 50
	maxSlippageBps     = 5000
	ether              = "ETH"
)

type entryBody struct {
	USDGOut        string    `json:"usdgOut"`
	MinUSDG        string    `json:"minUsdg"`
	PriceImpactBps int64     `json:"priceImpactBps"`
	Route          routeBody `json:"route"`
	At             uint64    `json:"at"`
}

type payoutBody struct {
	AmountOut      string    `json:"amountOut"`
	MinOut         string    `json:"minOut"`
	Rate           string    `json:"rate"`
	PriceImpactBps int64     `json:"priceImpactBps"`
	Route          routeBody `json:"route"`
	At             uint64    `json:"at"`
}

// amountOf is an amount that is positive and within a pool's limits.
func amountOf(p httpapi.Param) *uint256.Int {
	n := p.Required().Uint256()
	switch {
	case n == nil:
	case n.IsZero():
		p.Refuse("must be more than 0")
	case n.BitLen() > maxAmountBits:
		p.Refuse("must be below 2^%d", maxAmountBits)
	default:
		return n
	}
	return nil
}

// maxAmountBits is the size of int128, which pools use.
const maxAmountBits = 127

func slippageOf(req *httpapi.Request) int64 {
	if n := req.Query("slippageBps").Integer(0, maxSlippageBps); n != nil {
		return *n
	}
	return defaultSlippageBps
}

// etherTokens are ether and its wrapped form.
func (s *state) etherTokens() []common.Address {
	if s.weth == (common.Address{}) {
		return []common.Address{{}}
	}
	return []common.Address{{}, s.weth}
}

// quoteError maps the reason why there is no quote to an API error. amount is the parameter's name.
func (s *Service) quoteError(err error, amount, token string) error {
	switch {
	case errors.Is(err, errNoRoute):
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `"` + token + `" has no route through allowed pools`}
	case errors.Is(err, ammv4.ErrTicks):
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `"` + amount + `" crosses more ticks of the pools than one transaction can`}
	case errors.Is(err, ammv4.ErrLiquidity), errors.Is(err, ammv4.ErrOverflow), errors.Is(err, ammv4.ErrFee):
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `"` + amount + `" exceeds the liquidity of the pools`}
	}
	return s.refused(err)
}

func (s *Service) quoteEntry(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	amount := amountOf(req.Query("eth"))
	if err := req.Err(); err != nil {
		return err
	}
	st, err := s.state(ctx, res)
	if err != nil {
		return err
	}
	offer, err := st.offer(st.etherTokens(), []common.Address{s.cfg.Deployment.USDG}, nil)
	if err != nil {
		return s.quoteError(err, "eth", "eth")
	}
	q, err := offer.quote(true, amount)
	if err != nil {
		return s.quoteError(err, "eth", "eth")
	}
	return s.answer(res, st, entryBody{
		USDGOut: q.out.Dec(), MinUSDG: least(&q.out, defaultSlippageBps), PriceImpactBps: q.impactBps(),
		Route: q.route.body(), At: st.at.Timestamp,
	})
}

func (s *Service) quotePayout(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	amount := amountOf(req.Query("usdg"))
	token := tokenOrEther(req.Query("to").Required())
	slippage := slippageOf(req)
	if err := req.Err(); err != nil {
		return err
	}
	st, err := s.state(ctx, res)
	if err != nil {
		return err
	}
	usdg := s.cfg.Deployment.USDG
	if token != nil && *token == usdg {
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `"to" is the dollar token itself`}
	}
	offer, err := st.offer([]common.Address{usdg}, st.forms(token), nil)
	if err != nil {
		return s.quoteError(err, "usdg", "to")
	}
	q, err := offer.quote(true, amount)
	if err != nil {
		return s.quoteError(err, "usdg", "to")
	}
	decimals := uint8(etherDecimals)
	if token != nil {
		if decimals, err = st.decimals(*token); err != nil {
			return s.refused(err)
		}
	}
	rate := whole(fraction(q.out.ToBig(), q.in.ToBig()), contracts.USDGDecimals, decimals)
	return s.answer(res, st, payoutBody{
		AmountOut: q.out.Dec(), MinOut: least(&q.out, slippage), Rate: rate.String(), PriceImpactBps: q.impactBps(),
		Route: q.route.body(), At: st.at.Timestamp,
	})
}

// tokenOrEther is the address in a parameter; nil: ETH.
func tokenOrEther(p httpapi.Param) *common.Address {
	if p.Text() == ether {
		return nil
	}
	return p.Address()
}

// forms are the addresses of a token: ether has two.
func (s *state) forms(token *common.Address) []common.Address {
	if token == nil {
		return s.etherTokens()
	}
	return []common.Address{*token}
}
