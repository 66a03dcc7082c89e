package indexer

import (
	"context"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// The answer about the market as a whole.

func (x *Indexer) stats(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	answer, err := x.reader.Stats(ctx)
	if err != nil {
		return readError("statistics", err)
	}
	answered(x, res, &answer)
	res.Body = appendStats(res.Body, &answer.Value, answer.At.Timestamp)
	return nil
}

func appendStats(b []byte, s *query.Stats, now uint64) []byte {
	b = appendLocked(append(b, `{"tvl":{`...), &s.TVL)
	b = appendList(append(b, `,"byAsset":`...), s.TVL.ByAsset, func(b []byte, v *query.AssetValue) []byte {
		b = httpapi.AppendAddress(append(b, `{"token":`...), &v.Token)
		b = appendName(append(b, `,"lane":`...), contracts.LaneNames[v.Lane])
		b = appendField(b, "raw", &v.Raw)
		return append(appendField(b, "usdg", v.USDG), '}')
	})
	b = appendList(append(b, `,"unpriced":`...), s.TVL.Unpriced, httpapi.AppendAddress)
	b = appendWindows(append(b, `},"fees":`...), &s.Fees)
	b = appendInteger(append(b, `,"deals":{`...), "total", s.Deals.Total)
	b = appendInteger(b, "active", s.Deals.Active)
	b = append(b, `,"byState":{`...)
	for state, n := range s.Deals.ByState {
		b = appendInteger(b, contracts.DealStateNames[state], n)
	}
	b = appendWindows(append(b, `}},"volume":`...), &s.Volume)
	b = appendNullableInteger(append(b, `,"medians":{"costBps7d":`...), s.Medians.CostBps7d)
	b = appendNullableInteger(append(b, `,"costBps21d":`...), s.Medians.CostBps21d)
	b = appendNullableInteger(append(b, `,"timeToFundSeconds":`...), s.Medians.TimeToFundSeconds)
	b = appendField(append(b, `},"emissions":{`...), "ratePerSecond", s.Emissions.RatePerSecond)
	b = appendField(b, "releasedThisEpoch", s.Emissions.ReleasedThisEpoch)
	b = appendList(append(b, `},"priceHistory":`...), s.PriceHistory, func(b []byte, p *query.PricePoint) []byte {
		b = appendInteger(append(b, '{'), "t", p.T)
		b = appendPrice(append(b, `,"priceSTKNinTKN":`...), &p.PriceSTKNinTKN)
		b = appendPrice(append(b, `,"priceUSDGPerSTKN":`...), p.PriceUSDGPerSTKN)
		return append(b, '}')
	})
	b = appendList(append(b, `,"volumeHistory":`...), s.VolumeHistory, func(b []byte, h *query.HourOfVolume) []byte {
		b = appendField(appendInteger(append(b, '{'), "t", h.T), "volume", &h.Volume)
		return append(appendField(b, "fees", &h.Fees), '}')
	})
	return append(appendInteger(b, "asOf", now), '}')
}

// defaultDays is how many days a history has where none are asked for.
const defaultDays = 90

func (x *Indexer) history(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	days := int64(defaultDays)
	if n := req.Query("days").Integer(1, query.MaxDays); n != nil {
		days = *n
	}
	if err := req.Err(); err != nil {
		return err
	}
	answer, err := x.reader.History(ctx, int(days))
	if err != nil {
		return readError("history", err)
	}
	answered(x, res, &answer)
	b := appendList(append(res.Body, `{"days":`...), answer.Value, appendDay)
	res.Body = append(appendInteger(b, "asOf", answer.At.Timestamp), '}')
	return nil
}

func appendDay(b []byte, d *query.Day) []byte {
	b = appendInteger(append(b, '{'), "day", d.Start)
	b = appendLocked(append(b, `,"tvl":{`...), &d.TVL)
	b = appendField(append(b, `},"volume":{`...), "usdg", &d.Volume)
	return append(appendField(b, "fees", &d.Fees), "}}"...)
}

// appendLocked appends the sum and its parts by lane.
func appendLocked(b []byte, tvl *query.TVL) []byte {
	b = append(appendField(b, "usdg", &tvl.USDG), `,"byLane":{`...)
	for lane := range tvl.ByLane {
		b = appendField(b, contracts.LaneNames[lane], &tvl.ByLane[lane])
	}
	return append(b, '}')
}

func appendWindows(b []byte, w *query.Windows) []byte {
	b = appendField(append(b, '{'), "total", &w.Total)
	b = appendField(b, "last24h", &w.Last24h)
	b = appendField(b, "last7d", &w.Last7d)
	return append(b, '}')
}
