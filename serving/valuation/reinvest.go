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
	if err := st.sound(in); err != nil {
		return s.refused(err)
	}
	if *way == routeZap {
		return s.zap(res, st, in, &r)
	}
	return s.match(res, st, in, &r)
}

func (s *Service) zap(res *httpapi.Response, st *state, in *pool, r *reinvestment) error {
	z, err := st.zapped(in, r, in.Currency0 == s.cfg.Deployment.STKN)
	if err != nil {
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
	tkn := s.cfg.Deployment.TKN
	if r.pay != nil && *r.pay == s.cfg.Deployment.STKN {
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `route=zap requires "payAsset" to be the reinvested asset`}
	}
	var market *offer
	if r.pay == nil || *r.pay != tkn {
		var err error
		if market, err = st.offer(st.forms(r.pay), []common.Address{tkn}, in); err != nil { // buying in this pool would move its price
			return s.quoteError(err, "amount", "payAsset")
		}
	}
	liquidity, needed, err := st.matched(in, r, in.Currency0 == s.cfg.Deployment.STKN)
	if errors.Is(err, errNotTaken) {
		return &httpapi.Error{Code: httpapi.InvalidInput, Message: `"tickLower" and "tickUpper": ` + err.Error()}
	}
	if err != nil {
		return s.quoteError(err, "amount", "amount")
	}
	body := matchBody{
		TKNNeeded: needed.Dec(), MinLiquidity: least(&liquidity, r.slippage), PayAmount: "0", MaxPay: "0", At: st.at.Timestamp,
	}
	switch {
	case market == nil:
		body.PayAmount, body.MaxPay = needed.Dec(), most(&needed, r.slippage).String()
	case !needed.IsZero():
		q, err := market.quote(false, &needed)
		if err != nil {
			return s.quoteError(err, "amount", "payAsset")
		}
		path := q.route.body()
		body.PayAmount, body.MaxPay, body.Route = q.in.Dec(), most(&q.in, r.slippage).String(), &path
	}
	return s.answer(res, st, body)
}

// matched is the liquidity for an amount of one currency at the pool's price, and the required amount of the other,
// rounded up. It is refused if both amounts would be worth less at the reference price, by more than MaxDeviation: for
// a narrow range a small move of the price changes the required amount many times.
func (s *state) matched(in *pool, r *reinvestment, of0 bool) (liquidity, needed uint256.Int, err error) {
	if liquidity, needed, err = r.matched(&in.SqrtPriceX96, of0); err != nil {
		return liquidity, needed, err
	}
	fair, err := in.nearestIn(in.reference.cheap(of0)) // where the range needs least of the other currency
	if err != nil {
		return liquidity, needed, err
	}
	_, usual, err := r.matched(fair, of0)
	if errors.Is(err, errNotTaken) {
		return liquidity, needed, refuse(reasonDeviation, "at the reference price of pool %s the range does not take the staking token", in.ID)
	}
	if err != nil {
		return liquidity, needed, err
	}
	price := priceAt(fair)
	if !of0 {
		price = inverse(price)
	}
	all := worth(r.amount.ToBig(), price)
	bound := s.worse(all.Add(all, usual.ToBig()), 1)
	if most := bound.Sub(bound, worth(r.amount.ToBig(), price)); needed.ToBig().Cmp(most) > 0 {
		return liquidity, needed, refuse(reasonDeviation, "at the price of pool %s the range takes %s beside the amount, and %s at its reference price",
			in.ID, needed.Dec(), usual.Dec())
	}
	return liquidity, needed, nil
}

// zapped computes how an amount becomes liquidity in a pool. It is refused if at the pool's reference price it would
// become more liquidity, or less of it would be sold, by more than MaxDeviation of the amount.
func (s *state) zapped(in *pool, r *reinvestment, of0 bool) (z ammv4.Zapped, err error) {
	if err := in.amm.Zap(&z, of0, r.amount, r.lower, r.upper); err != nil {
		return z, err
	}
	for _, settled := range in.settled.both() {
		if settled == nil {
			return z, refuse(reasonDepth, "pool %s cannot be moved to its reference price", in.ID)
		}
		var usual ammv4.Zapped
		if err := settled.amm.Zap(&usual, of0, r.amount, r.lower, r.upper); err != nil {
			return z, refuse(reasonDepth, "pool %s cannot take the amount at its reference price: %s", in.ID, err)
		}
		amount := r.amount.ToBig()
		most := s.worse(amount, 1)
		most.Sub(most, amount).Add(most, usual.Sold.ToBig())
		if z.Sold.ToBig().Cmp(most) > 0 || s.worse(z.Liquidity.ToBig(), 1).Cmp(usual.Liquidity.ToBig()) < 0 {
			return z, refuse(reasonDeviation, "at the price of pool %s %s is sold for a liquidity of %s, at its reference price %s for %s",
				in.ID, z.Sold.Dec(), z.Liquidity.Dec(), usual.Sold.Dec(), usual.Liquidity.Dec())
		}
	}
	return z, nil
}

// matched is the liquidity for an amount of one currency at a price, and the required amount of the other, rounded up.
func (r *reinvestment) matched(at *uint256.Int, of0 bool) (liquidity, needed uint256.Int, err error) {
	a, err := ammv4.SqrtPriceAtTick(r.lower)
	if err != nil {
		return liquidity, needed, err
	}
	b, err := ammv4.SqrtPriceAtTick(r.upper)
	if err != nil {
		return liquidity, needed, err
	}
	// The part of the range that the given currency fills, from the end where the liquidity is all in it.
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
