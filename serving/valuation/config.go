package valuation

import (
	"errors"
	"fmt"
	"time"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Config is how the service values and when it refuses. Start from DefaultConfig.
type Config struct {
	HTTP       httpapi.Config
	Deployment contracts.Deployment

	Reference Reference
	Haircut   Haircut

	MaxAge      time.Duration // of the state's block, by its timestamp; 0 where the chain may stand still or has a clock of its own
	MaxLag      time.Duration // for which the state of an earlier block still answers while the next one is read
	Poll        time.Duration // between two looks for a later block
	IdleAfter   time.Duration // without a request after which nothing is read ahead
	ReadTimeout time.Duration // of reading the state of a block
	MaxTerm     time.Duration // of a suggested range
	FeeLookback time.Duration // over which the fees of a suggested range are estimated
}

// Reference says what a reference price is and when it is none.
type Reference struct {
	Window       time.Duration // of the time-weighted median tick
	MinHistory   time.Duration // that a pool must have a price for
	MaxDeviation int32         // ticks between the pool and its reference
	MinDepth     uint64        // raw USDG that move a pool by 2 % at least, in either direction
}

// Haircut says which part of a value is suggested as a cap.
type Haircut struct {
	LaneMaxBps     [4]uint16 // by contracts.Lane; a position's is the lower of its tokens'
	Quantile       float64   // how many deviations of the price are feared
	Decay          float64   // of the average of squared hourly returns
	MinHours       int       // of history, below which the deviation is at least UnknownHourly
	UnknownHourly  float64   // standard deviation of an hour's log return
	History        time.Duration
	RangeDeviation float64 // half the width of a suggested range, in deviations over the term
}

// DefaultConfig returns the defaults. The deployment has none.
func DefaultConfig() Config {
	return Config{
		HTTP: httpapi.DefaultConfig(":4100"),
		Reference: Reference{
			Window: 30 * time.Minute, MinHistory: 30 * time.Minute, MaxDeviation: 200, MinDepth: 10_000_000_000,
		},
		Haircut: Haircut{
			LaneMaxBps: [4]uint16{contracts.LaneStock: 7000, contracts.LaneETH: 7000, contracts.LaneMeme: 2500, contracts.LanePosition: 7000},
			Quantile:   1.65, Decay: 0.94, MinHours: 24, UnknownHourly: 0.01, History: 7 * 24 * time.Hour, RangeDeviation: 1.5,
		},
		MaxAge:      60 * time.Second,
		MaxLag:      200 * time.Millisecond,
		Poll:        10 * time.Millisecond,
		IdleAfter:   10 * time.Second,
		ReadTimeout: 2 * time.Second,
		MaxTerm:     365 * 24 * time.Hour,
		FeeLookback: 24 * time.Hour,
	}
}

// Validate returns every fault of the configuration.
func (c *Config) Validate() error {
	faults := []error{c.HTTP.Validate()}
	if c.Deployment.ChainID == 0 {
		faults = append(faults, errors.New("deployment: has no chain ID"))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"reference window", c.Reference.Window},
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
	if c.MaxAge < 0 || c.MaxLag < 0 || c.Reference.MinHistory < 0 || c.Reference.MinHistory > c.Reference.Window {
		faults = append(faults, fmt.Errorf("maximum age %s, maximum lag %s and minimum history %s: negative, or the history exceeds the window",
			c.MaxAge, c.MaxLag, c.Reference.MinHistory))
	}
	if c.Reference.MaxDeviation <= 0 {
		faults = append(faults, fmt.Errorf("maximum deviation: %d ticks", c.Reference.MaxDeviation))
	}
	for lane, bps := range c.Haircut.LaneMaxBps {
		if bps == 0 || bps > 10_000 {
			faults = append(faults, fmt.Errorf("haircut of lane %d: %d bps", lane, bps))
		}
	}
	h := &c.Haircut
	if !(h.Quantile > 0) || !(h.Decay > 0 && h.Decay < 1) || !(h.UnknownHourly >= 0) || !(h.RangeDeviation > 0) || h.MinHours < 0 {
		faults = append(faults, fmt.Errorf("haircut: quantile %g, decay %g, unknown deviation %g, range of %g deviations, %d hours",
			h.Quantile, h.Decay, h.UnknownHourly, h.RangeDeviation, h.MinHours))
	}
	return errors.Join(faults...)
}
