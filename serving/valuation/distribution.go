package valuation

import (
	"context"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts/ammv4"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// maxSegments bounds a distribution to the segments nearest to the price, equally many above and below.
const maxSegments = 256

type distributionBody struct {
	PoolID        string        `json:"poolId"`
	Tick          int32         `json:"tick"`
	ReferenceTick int32         `json:"referenceTick"`
	Segments      []segmentBody `json:"segments"`
	AsOfBlock     uint64        `json:"asOfBlock"`
	At            uint64        `json:"at"`
}

// segmentBody is the liquidity between two adjacent initialised ticks.
type segmentBody struct {
	TickLower int32  `json:"tickLower"`
	TickUpper int32  `json:"tickUpper"`
	Liquidity string `json:"liquidity"`
}

// poolLiquidity is the distribution of a pool's liquidity around its price.
func (s *Service) poolLiquidity(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	param := req.Path("pool")
	id := param.Hash()
	if err := req.Err(); err != nil {
		return err
	}
	st, err := s.state(ctx, res)
	if err != nil {
		return err
	}
	p, err := st.allowedPool(*id)
	if err != nil {
		return err
	}
	return s.answer(res, st, &distributionBody{
		PoolID: p.ID.Hex(), Tick: p.Tick, ReferenceTick: p.reference.middle(), Segments: distribution(p.Below, p.Ticks, p.Tick),
		AsOfBlock: st.at.Number, At: st.at.Timestamp,
	})
}

// distribution sums ticks up to segments around a tick. liquidity is the amount below the first tick.
func distribution(liquidity uint256.Int, ticks []ammv4.Tick, around int32) []segmentBody {
	segments := []segmentBody{}
	n := max(len(ticks)-1, 0)
	middle := 0
	for middle < n && around >= ticks[middle+1].Index {
		middle++
	}
	first := max(middle-maxSegments/2, 0)
	for i := range ticks[:min(first+maxSegments, n)] {
		if liquidity.Add(&liquidity, &ticks[i].Net); i >= first { // there may be many ticks: anyone can add tiny positions
			segments = append(segments, segmentBody{ticks[i].Index, ticks[i+1].Index, liquidity.Dec()})
		}
	}
	return segments
}
