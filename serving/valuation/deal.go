package valuation

import (
	"context"
	"errors"
	"math/big"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

type dealBody struct {
	DealID       string        `json:"dealId"`
	ValueUSDG    string        `json:"valueUSDG"`
	PriceUSDG    string        `json:"priceUSDG"`
	Source       sourceBody    `json:"source"`
	Scenarios    scenariosBody `json:"scenarios"`
	Position     *positionBody `json:"position"`
	SuggestedCap string        `json:"suggestedCap"`
	OpenRaw      *string       `json:"openRaw"`
	Lane         string        `json:"lane"`
	At           uint64        `json:"at"`
}

type scenariosBody struct {
	Now           *scenarioBody `json:"now"`
	AtCap         *scenarioBody `json:"atCap"`
	AtRangeTop    *scenarioBody `json:"atRangeTop"`
	AtRangeBottom *scenarioBody `json:"atRangeBottom"`
	Down20        *scenarioBody `json:"down20"`
	Down50        *scenarioBody `json:"down50"`
	Down80        *scenarioBody `json:"down80"`
}

type scenarioBody struct {
	PriceUSDG  string `json:"priceUSDG"`
	ValueUSDG  string `json:"valueUSDG"`
	LenderGets string `json:"lenderGets"`
	LenderPnl  string `json:"lenderPnl"`
}

type positionBody struct {
	TokenID   string `json:"tokenId"`
	PoolID    string `json:"poolId"`
	Token0    string `json:"token0"`
	Token1    string `json:"token1"`
	Fee       uint32 `json:"fee"`
	TickLower int32  `json:"tickLower"`
	TickUpper int32  `json:"tickUpper"`
	Liquidity string `json:"liquidity"`
	InRange   bool   `json:"inRange"`
	Amount0   string `json:"amount0"`
	Amount1   string `json:"amount1"`
	Fees0     string `json:"fees0"`
	Fees1     string `json:"fees1"`
	FeesUSDG  string `json:"feesUSDG"`
}

// collateral is a deal's collateral, whose value depends on one price.
type collateral interface {
	// base returns the token with that price, and its reference price.
	base() *quoted
	// value is the value in raw USDG at a price of the base, rounded down.
	value(at price) (*big.Int, error)
	// atValue is the lowest price with at least this value; false: there is none.
	atValue(want *big.Int) (price, bool, error)
	// ends are the prices at the lower and the upper end of its range; false: it has none.
	ends() (bottom, top price, ok bool, err error)
	// proceeds is the result of selling all of it into the pools.
	proceeds(in poolPrice) (*big.Int, error)
	// text formats a price of the base per whole token.
	text(p price) string
	// haircut is the standard deviation of an hour's return and the maximum suggested part.
	haircut() (sigma float64, maxBps uint16)
	pools() []*pool
}

func (s *Service) dealValuation(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	id := req.Path("id").Uint256()
	if err := req.Err(); err != nil {
		return err
	}
	st, err := s.state(ctx, res)
	if err != nil {
		return err
	}
	answer, err := s.reader.Collateral(ctx, st.at, id)
	if errors.Is(err, query.ErrNotFound) {
		return &httpapi.Error{Code: dealNotFound, Message: "there is no deal " + id.Dec()}
	}
	if err != nil {
		return upstream(err)
	}
	deal := &answer.Value.Deal
	body := dealBody{DealID: deal.ID.Dec(), Lane: contracts.LaneNames[deal.Lane], At: st.at.Timestamp}
	var held collateral
	if deal.Kind == contracts.KindPosition {
		p, err := st.pledgedPosition(answer.Value.Position)
		if err != nil {
			return s.refused(err)
		}
		if body.Position, err = s.positionBody(ctx, st, p); err != nil {
			return s.refused(err)
		}
		held = p
	} else {
		if held, err = st.pledgedToken(deal); err != nil {
			return s.refused(err)
		}
		if a := st.assets[deal.Token]; a != nil {
			body.OpenRaw = new(a.OpenRaw.Dec())
		}
	}
	if err := body.fill(st, deal, held); err != nil {
		return s.refused(err)
	}
	return s.answer(res, st, &body)
}

// fill computes what all kinds of collateral have in common.
func (b *dealBody) fill(st *state, deal *topics.Deal, held collateral) error {
	now := held.base().price
	value, err := held.value(now)
	if err != nil {
		return err
	}
	b.ValueUSDG, b.PriceUSDG, b.Source = value.String(), held.text(now), st.source(held.pools())
	safe := value
	for _, in := range []poolPrice{asTheyStand, atReference} { // the lower one: manipulating a pool upwards gains nothing
		sold, err := held.proceeds(in)
		if err != nil {
			return err
		}
		if sold.Cmp(safe) < 0 {
			safe = sold
		}
	}
	sigma, most := held.haircut()
	b.SuggestedCap = shaved(safe, st.cfg.Haircut.factor(sigma, deal.Term, most)).String()

	paid := deal.MinPrice.ToBig()
	if deal.Funding != nil {
		paid = deal.Funding.Price.ToBig()
	}
	scenario := func(at price) (*scenarioBody, error) {
		value, err := held.value(at)
		if err != nil {
			return nil, err
		}
		gets := deal.Cap.ToBig()
		if value.Cmp(gets) < 0 {
			gets = value
		}
		return &scenarioBody{held.text(at), value.String(), gets.String(), new(big.Int).Sub(gets, paid).String()}, nil
	}
	c := &b.Scenarios
	for _, at := range []struct {
		to    **scenarioBody
		price price
	}{{&c.Now, now}, {&c.Down20, part(now, 4, 5)}, {&c.Down50, part(now, 1, 2)}, {&c.Down80, part(now, 1, 5)}} {
		if *at.to, err = scenario(at.price); err != nil {
			return err
		}
	}
	if at, ok, err := held.atValue(deal.Cap.ToBig()); err != nil {
		return err
	} else if ok {
		if c.AtCap, err = scenario(at); err != nil {
			return err
		}
	}
	bottom, top, ok, err := held.ends()
	if err != nil || !ok {
		return err
	}
	if c.AtRangeBottom, err = scenario(bottom); err != nil {
		return err
	}
	c.AtRangeTop, err = scenario(top)
	return err
}

// pledgedToken is an amount of a token.
type pledgedToken struct {
	st     *state
	deal   *topics.Deal
	amount *big.Int
	quote  *quoted
}

func (s *state) pledgedToken(deal *topics.Deal) (*pledgedToken, error) {
	q, err := s.reference(deal.Token)
	return &pledgedToken{s, deal, deal.AmountOrTokenID.ToBig(), q}, err
}

func (t *pledgedToken) base() *quoted                    { return t.quote }
func (t *pledgedToken) pools() []*pool                   { return t.quote.pools() }
func (t *pledgedToken) text(p price) string              { return t.quote.text(p) }
func (t *pledgedToken) value(at price) (*big.Int, error) { return worth(t.amount, at), nil }

func (t *pledgedToken) atValue(want *big.Int) (price, bool, error) {
	if t.amount.Sign() == 0 {
		return price{}, false, nil
	}
	return fraction(want, t.amount), true, nil
}

func (t *pledgedToken) ends() (bottom, top price, ok bool, err error) {
	return price{}, price{}, false, nil
}

func (t *pledgedToken) haircut() (sigma float64, maxBps uint16) {
	return t.st.sigma(t.deal.Token, t.quote), t.st.maxBps(t.deal.Token)
}

func (t *pledgedToken) proceeds(in poolPrice) (*big.Int, error) {
	amount, over := uint256.FromBig(t.amount)
	if over {
		return new(big.Int), nil
	}
	sum, _, err := t.st.soldFor(t.deal.Token, amount, in)
	return sum, err
}
