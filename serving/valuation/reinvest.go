package valuation

import (
	"context"
	"errors"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi"
)

type matchBody struct {
	TKNNeeded    string     `json:"tknNeeded"`
	PayAmount    string     `json:"payAmount"`
	MaxPay       string     `json:"maxPay"`
	MinLiquidity string     `json:"minLiquidity"`
	Route        *routeBody `json:"route"`
	At           uint64     `json:"at"`
}

type zapBody struct {
	STKNToSell   string `json:"stknToSell"`
	MaxSold      string `json:"maxSold"`
	FeeOnSold    string `json:"feeOnSold"`
	MinLiquidity string `json:"minLiquidity"`
	At           uint64 `json:"at"`
}

type reinvestRoute uint8

const (
	routeMatch reinvestRoute = iota
	routeZap
)

var reinvestRoutes = []string{"match", "zap"}

// reinvestment is the parameters of a reinvestment.
type reinvestment struct {
	amount       *uint256.Int
	lower, upper int32
	pay          *common.Address // nil: ETH
	slippage     int64
}

// quoteReinvest quotes how an amount of sTKN becomes liquidity of the token layer's pool: by buying TKN for the
// other side, or by selling a part of the sTKN.
func (s *Service) quoteReinvest(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	r := reinvestment{amount: amountOf(req.Query("amount"))}
	lowest, highest := req.Query("tickLower"), req.Query("tickUpper")
	below := lowest.Required().Integer(ammv4.MinTick, ammv4.MaxTick)
	above := highest.Required().Integer(ammv4.MinTick, ammv4.MaxTick)
	way := httpapi.Enum[reinvestRoute](req.Query("route").Required(), reinvestRoutes)
	payAsset := req.Query("payAsset")
	r.slippage = slippageOf(req)
	if below != nil && above != nil && *below >= *above {
		highest.Refuse("must be above tickLower")
	}
	if way != nil && *way == routeMatch {
		r.pay = tokenOrEther(payAsset.Required())
	} else if payAsset.Given() {
		payAsset.Refuse("is only allowed with route=match")
	}
	if err := req.Err(); err != nil {
		return err
	}
	st, err := s.state(ctx, res)
	if err != nil {
		return err
	}
	in := st.byID(s.cfg.Deployment.PoolID)
	if in == nil || !s.cfg.Deployment.HasTokenLayer() {
		return s.refused(refuse(reasonNoPool, "this chain has no pool of the staking token"))
	}
	r.lower, r.upper = int32(*below), int32(*above)
	for _, end := range []struct {
		param httpapi.Param
		tick  int32
	}{{lowest, r.lower}, {highest, r.upper}} {
		if end.tick%in.TickSpacing != 0 {
			end.param.Refuse("must be a multiple of %d", in.TickSpacing)
		}
	}
	if err := req.Err(); err != nil {
		return err
	}
	if err := st.steady(in); err != nil {
		return s.refused(err)
	}
	if *way == routeZap {
		return s.zap(res, st, in, &r)
	}
	return s.match(res, st, in, &r)
}

func (s *Service) zap(res *httpapi.Response, st *state, in *pool, r *reinvestment) error {
	var z ammv4.Zapped
	if err := in.amm.Zap(&z, in.Currency0 == s.cfg.Deployment.STKN, r.amount, r.lower, r.upper); err != nil {
		return s.quoteError(err, "amount", "amount")
	}
	sold := most(&z.Sold, r.slippage)
	if all := r.amount.ToBig(); sold.Cmp(all) > 0 {
		sold = all // there is no more to sell
	}
	return s.answer(res, st, zapBody{
		STKNToSell: z.Sold.Dec(), MaxSold: sold.String(), FeeOnSold: z.Swap.Fee.Dec(),
		MinLiquidity: least(&z.Liquidity, r.slippage), At: st.at.Timestamp,
	})
}

// match computes the liquidity for the sTKN at the pool's price, and the cost of the TKN that it needs.
func (s *Service) match(res *httpapi.Response, st *state, in *pool, r *reinvestment) error {
	liquidity, needed, err := in.matched(r, in.Currency0 == s.cfg.Deployment.STKN)
	if errors.Is(err, errNotTaken) {
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `"tickLower" and "tickUpper": ` + err.Error()}
	}
	if err != nil {
		return s.quoteError(err, "amount", "amount")
	}
	body := matchBody{TKNNeeded: needed.Dec(), MinLiquidity: least(&liquidity, r.slippage), At: st.at.Timestamp}
	pay, tkn := st.forms(r.pay), s.cfg.Deployment.TKN
	switch {
	case r.pay != nil && *r.pay == s.cfg.Deployment.STKN:
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `route=zap requires "payAsset" to be the reinvested asset`}
	case r.pay != nil && *r.pay == tkn:
		body.PayAmount, body.MaxPay = needed.Dec(), most(&needed, r.slippage).String()
		return s.answer(res, st, body)
	}
	ways, err := st.routes(pay, []common.Address{tkn}, in) // buying in the pool itself would move it
	if err != nil {
		return s.quoteError(err, "amount", "payAsset")
	}
	body.PayAmount, body.MaxPay = "0", "0"
	if !needed.IsZero() {
		q, err := best(ways, false, &needed)
		if err != nil {
			return s.quoteError(err, "amount", "payAsset")
		}
		path := q.route.body()
		body.PayAmount, body.MaxPay, body.Route = q.in.Dec(), most(&q.in, r.slippage).String(), &path
	}
	return s.answer(res, st, body)
}

// matched is the liquidity for an amount of one currency, and the required amount of the other, rounded up.
func (p *pool) matched(r *reinvestment, of0 bool) (liquidity, needed uint256.Int, err error) {
	a, err := ammv4.SqrtPriceAtTick(r.lower)
	if err != nil {
		return liquidity, needed, err
	}
	b, err := ammv4.SqrtPriceAtTick(r.upper)
	if err != nil {
		return liquidity, needed, err
	}
	// The part of the range that the given currency fills, from the end where the liquidity is all in it.
	at := &p.SqrtPriceX96
	low, high := a, b
	if of0 && at.Gt(a) {
		low = at
	} else if !of0 && at.Lt(b) {
		high = at
	}
	if !low.Lt(high) {
		return liquidity, needed, errNotTaken
	}
	if of0 {
		liquidity, err = ammv4.LiquidityFor(low, low, high, r.amount, new(uint256.Int))
	} else {
		liquidity, err = ammv4.LiquidityFor(high, low, high, new(uint256.Int), r.amount)
	}
	if err != nil {
		return liquidity, needed, err
	}
	takes, err := ammv4.Deposit(at, a, b, &liquidity)
	if of0 {
		return liquidity, takes[1], err
	}
	return liquidity, takes[0], err
}

// errNotTaken: at the pool's price the range takes only the other currency.
var errNotTaken = errors.New("the range does not take the staking token at the current price")
