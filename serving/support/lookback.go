package support

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"go.uber.org/zap"
)

const (
	// lateLimit is how long after its end an authorization is still looked up.
	lateLimit = time.Hour
	// clockMargin is the tolerated difference of our clock, the payer's and the chain's, in sum.
	clockMargin = 5 * time.Minute
	// lookBackEvery is the interval of advancing the start of searches. A search that starts too early finds the same.
	lookBackEvery = 10 * time.Minute
)

// lookBack is how long ago an authorization may have been used that is still looked up: its validity, and the time
// after it.
func (s *Service) lookBack() time.Duration {
	return lateLimit + time.Duration(s.cfg.Payment.MaxTimeoutSeconds)*time.Second + clockMargin
}

// fromBlock is where the search for an authorization starts.
func (s *Service) fromBlock() uint64 { return s.searchFrom.Load() }

// keepFrom advances the start of searches.
func (s *Service) keepFrom(ctx context.Context) {
	for sleep(ctx, lookBackEvery) {
		if err := s.findFrom(ctx); err != nil && ctx.Err() == nil {
			s.metrics.chainErrors.Inc()
			s.log.Warn("cannot advance the start of payment searches", zap.Error(err))
		}
	}
}

// findFrom finds the block at which searches start, by its time, because chains differ in their blocks per hour. It
// goes back from the head in growing steps, because nodes may lack the oldest blocks, and then bisects the last step.
func (s *Service) findFrom(ctx context.Context) error {
	head, err := s.deps.Chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return fmt.Errorf("read the payment chain's head: %w", err)
	}
	at := min(head.Time, uint64(max(s.deps.Now().Unix(), 0)))
	at -= min(at, uint64(s.lookBack()/time.Second))
	from, to := uint64(0), head.Number.Uint64() // the first block that is not before that time is one of these
	for step := uint64(1); from < to; step *= 2 {
		middle := from + (to-from)/2
		if from == 0 {
			middle = to - min(to, step)
		}
		early, err := s.isBefore(ctx, middle, at)
		switch {
		case err != nil:
			return err
		case early:
			from = middle + 1
		default:
			to = middle
		}
	}
	s.searchFrom.Store(from)
	return nil
}

func (s *Service) isBefore(ctx context.Context, number, at uint64) (bool, error) {
	header, err := s.deps.Chain.HeaderByNumber(ctx, new(big.Int).SetUint64(number))
	if err != nil {
		return false, fmt.Errorf("read block %d of the payment chain: %w", number, err)
	}
	return header.Time < at, nil
}
