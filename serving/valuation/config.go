package valuation

import (
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Config of the service. Start from DefaultConfig.
type Config struct {
	HTTP       httpapi.Config
	Deployment contracts.Deployment

	Reference Reference
	Haircut   Haircut
	Lockers   []string // addresses that never give a position back, besides deadAddress

	// MaxAge is the maximum age of the state's block, by its timestamp. 0: no limit, for a chain that may pause or has
	// its own clock.
	MaxAge time.Duration
	// MaxGap is the gap between two blocks beyond which the chain counts as halted: prices are refused until
	// Reference.MinHistory has passed since. 0: no limit, as for MaxAge.
	MaxGap time.Duration

	MaxLag      time.Duration // how long an earlier block's state is used while the next one is being read
	Poll        time.Duration // poll interval for a later block
	IdleAfter   time.Duration // without requests for this long, states are not read in advance
	ReadTimeout time.Duration // of reading a block's state
	MaxTerm     time.Duration // maximum term of a suggested range
	FeeLookback time.Duration // period for estimating the fees of a suggested range
}

// Reference defines reference prices, and when they are refused.
type Reference struct {
	Window       time.Duration // of the time-weighted median tick
	MinHistory   time.Duration // minimum price history of a pool
	MaxDeviation int32         // maximum ticks between the pool's price and its reference
	MinDepth     uint64        // raw USDG that must be needed to move a pool's price by 2 %, in either direction
}

// Haircut defines which part of a value is suggested as a cap.
type Haircut struct {
	LaneMaxBps     [4]uint16 // by contracts.Lane; a position has the lower of its tokens'
	Quantile       float64   // number of standard deviations of the price to allow for
	Decay          float64   // of the exponential average of squared hourly returns
	MinHours       int       // minimum hours of history; with less, the deviation is at least UnknownHourly
	UnknownHourly  float64   // standard deviation of an hour's log return
	UnknownMeme    float64   // the same for a meme token as collateral: 6 % an hour, nearly 30 % a day, as new ones move
	History        time.Duration
	RangeDeviation float64 // half the width of a suggested range, in standard deviations over the term
}

// DefaultConfig returns the defaults, without the deployment.
func DefaultConfig() Config {
	return Config{
		HTTP: httpapi.DefaultConfig(":4100"),
		Reference: Reference{
			Window: 30 * time.Minute, MinHistory: 30 * time.Minute, MaxDeviation: 200, MinDepth: 10_000_000_000,
		},
		Haircut: Haircut{
			LaneMaxBps: [4]uint16{contracts.LaneStock: 7000, contracts.LaneETH: 7000, contracts.LaneMeme: 2500, contracts.LanePosition: 7000},
			Quantile:   1.65, Decay: 0.94, MinHours: 24, UnknownHourly: 0.01, UnknownMeme: 0.06,
			History: 7 * 24 * time.Hour, RangeDeviation: 1.5,
		},
		MaxAge:      60 * time.Second,
		MaxGap:      time.Minute,
		MaxLag:      200 * time.Millisecond,
		Poll:        10 * time.Millisecond,
		IdleAfter:   10 * time.Second,
		ReadTimeout: 2 * time.Second,
		MaxTerm:     365 * 24 * time.Hour,
		FeeLookback: 24 * time.Hour,
	}
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	faults := []error{c.HTTP.Validate()}
	if c.Deployment.ChainID == 0 {
		faults = append(faults, errors.New("deployment: has no chain ID"))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"valuation-window", c.Reference.Window},
		{"poll", c.Poll},
		{"idle after", c.IdleAfter},
		{"read timeout", c.ReadTimeout},
		{"maximum term", c.MaxTerm},
		{"history of returns", c.Haircut.History},
		{"lookback of fees", c.FeeLookback},
	} {
		if d.d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %s is not positive", d.name, d.d))
		}
	}
	if c.Reference.Window > query.SecondsKept {
		faults = append(faults, fmt.Errorf("valuation-window: %s is more than %s", c.Reference.Window, query.SecondsKept))
	}
	if c.MaxGap < 0 || c.MaxGap > 0 && c.MaxGap < time.Second {
		faults = append(faults, fmt.Errorf("valuation-max-gap: %s is neither 0 nor at least 1s", c.MaxGap))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"valuation-max-age", c.MaxAge}, {"maximum lag", c.MaxLag}, {"valuation-min-history", c.Reference.MinHistory}} {
		if d.d < 0 {
			faults = append(faults, fmt.Errorf("%s: %s is negative", d.name, d.d))
		}
	}
	if c.Reference.MinHistory > c.Reference.Window {
		faults = append(faults, fmt.Errorf("valuation-min-history: %s is more than the window of %s", c.Reference.MinHistory, c.Reference.Window))
	}
	if c.Reference.MaxDeviation <= 0 {
		faults = append(faults, fmt.Errorf("valuation-max-deviation: %d ticks is not positive", c.Reference.MaxDeviation))
	}
	for lane, bps := range c.Haircut.LaneMaxBps {
		if bps == 0 || bps > 10_000 {
			faults = append(faults, fmt.Errorf("haircut of lane %d: %d bps", lane, bps))
		}
	}
	if len(c.Lockers) > maxLockers {
		faults = append(faults, fmt.Errorf("valuation-lockers: %d are more than %d", len(c.Lockers), maxLockers))
	}
	for _, locker := range c.Lockers {
		if !common.IsHexAddress(locker) {
			faults = append(faults, fmt.Errorf("valuation-lockers: %q is not an address", locker))
		}
	}
	h := &c.Haircut
	if !(h.Quantile > 0) || !(h.Decay > 0 && h.Decay < 1) || !(h.UnknownHourly >= 0 && h.UnknownMeme >= 0) || !(h.RangeDeviation > 0) || h.MinHours < 0 {
		faults = append(faults, fmt.Errorf("haircut: quantile %g, decay %g, unknown deviation %g and %g, range of %g deviations, %d hours",
			h.Quantile, h.Decay, h.UnknownHourly, h.UnknownMeme, h.RangeDeviation, h.MinHours))
	}
	return errors.Join(faults...)
}
