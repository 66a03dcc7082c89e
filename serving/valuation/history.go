package valuation

import (
	"context"
	"fmt"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi"
)

type pricesBody struct {
	Token  string      `json:"token"`
	Prices []pointBody `json:"prices"`
	Source sourceBody  `json:"source"`
	At     uint64      `json:"at"`
}

type pointBody struct {
	At        uint64 `json:"at"`
	PriceUSDG string `json:"priceUSDG"`
}

// assetPrices is the price of a token at the close of hours; the last is now.
func (s *Service) assetPrices(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	st, token, err := s.token(ctx, req, res)
	if err != nil {
		return err
	}
	q, err := st.reference(token)
	if err != nil {
		return s.refused(err)
	}
	b := pricesBody{Token: lower(token), Prices: []pointBody{}, Source: st.source(q.pools()), At: st.at.Timestamp}
	series := st.series(token, q.pools())
	for i, sum := range series {
		if sum.empty || sum.brief { // anyone could have set that price
			continue
		}
		root, err := ammv4.SqrtPriceAtTick(tickOf(sum.low))
		if err != nil {
			return fmt.Errorf("price of %s: %w", token, err)
		}
		at := st.at.Timestamp
		if left := len(series) - 1 - i; left > 0 {
			at = (at-1)/hour*hour - uint64(left-1)*hour
		}
		b.Prices = append(b.Prices, pointBody{at, q.text(priceAt(root))})
	}
	return s.answer(res, st, &b)
}

// tickOf is the tick of a sum of ticks, which over two pools may exceed the limits of one.
func tickOf(sum float64) int32 { return int32(min(max(sum, ammv4.MinTick), ammv4.MaxTick)) }
