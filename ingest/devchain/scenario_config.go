package devchain

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// ScenarioConfig says what the actors do, and how fast. The zero value of a field stands for its default.
type ScenarioConfig struct {
	Seed uint64 // decides every choice
	// Rate is how many blocks Run mines in a second: DefaultRate. Step ignores it.
	Rate float64
	// TxsPerBlock is how many transactions the actors aim at in a block: 5. At 250 a block has about 500
	// logs of the market; give such a market more actors too.
	TxsPerBlock int
	// CalmAfter is after how many blocks the actors do a fifth of that, since deals that have ended are kept for good by
	// whoever indexes them: never.
	CalmAfter uint64
	// TimePerBlock is by how much the timestamp advances on average: 30 minutes, so that at two blocks a
	// second a term of 7 days is over within 3 minutes. Each block takes between half and one and a half of it.
	TimePerBlock time.Duration
	// MaxDeals is how many deals are open or funded at once: 40 for each transaction of a block. New ones
	// wait for old ones to end, which bounds what the actors hold in memory.
	MaxDeals int

	// Reorgs makes the chain drop its last blocks and mine others, about every ReorgEvery blocks: 40. Half
	// of the reorgs are 1 to 3 blocks deep, the others anything up to MaxReorgDepth: 64.
	Reorgs        bool
	ReorgEvery    int
	MaxReorgDepth int

	Logger     *zap.Logger           // none
	Registerer prometheus.Registerer // none
}

// DefaultRate of blocks, the rest of the defaults, and what is allowed.
const (
	DefaultRate         = 2
	defaultTxsPerBlock  = 5
	defaultTimePerBlock = 30 * time.Minute
	defaultDealsPerTx   = 40
	defaultReorgEvery   = 40
	defaultReorgDepth   = 64
	maxRate             = 1000
	maxTxsPerBlock      = 2000
	minTimePerBlock     = 2 * time.Second // half of it is a whole second
	maxTimePerBlock     = 7 * 24 * time.Hour
)

func (c ScenarioConfig) withDefaults() ScenarioConfig {
	c.Rate = or(c.Rate, DefaultRate)
	c.TxsPerBlock = or(c.TxsPerBlock, defaultTxsPerBlock)
	c.TimePerBlock = or(c.TimePerBlock, defaultTimePerBlock)
	c.MaxDeals = or(c.MaxDeals, defaultDealsPerTx*c.TxsPerBlock)
	c.ReorgEvery = or(c.ReorgEvery, defaultReorgEvery)
	c.MaxReorgDepth = or(c.MaxReorgDepth, defaultReorgDepth)
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// Validate names every fault of the configuration at once.
func (c ScenarioConfig) Validate() error {
	c = c.withDefaults()
	var faults []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	check(c.Rate > 0 && c.Rate <= maxRate, "rate %g: not above 0 and at most %d", c.Rate, maxRate)
	check(c.TxsPerBlock > 0 && c.TxsPerBlock <= maxTxsPerBlock, "txsPerBlock %d: not between 1 and %d", c.TxsPerBlock, maxTxsPerBlock)
	check(c.TimePerBlock >= minTimePerBlock && c.TimePerBlock <= maxTimePerBlock,
		"timePerBlock %s: not between %s and %s", c.TimePerBlock, minTimePerBlock, maxTimePerBlock)
	check(c.MaxDeals > 0, "maxDeals %d: not above 0", c.MaxDeals)
	check(c.ReorgEvery > 0, "reorgEvery %d: not above 0", c.ReorgEvery)
	check(c.MaxReorgDepth > 0, "maxReorgDepth %d: not above 0", c.MaxReorgDepth)
	return errors.Join(faults...)
}
