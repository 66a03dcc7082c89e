package query

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
)

// A day that is over does not change, unless blocks are reverted. So a client keeps the days that it has read, and
// reads only the current one for each answer: a request for a year costs little more than one for a day.

// closedDays is days as of a moment, ascending. The last one was not over. It is read-only.
type closedDays struct {
	at   read.Moment
	days []Day
}

// periods are the numbers of days that are read where more than the last ones are missing, so that requests for
// different numbers of days share what was read.
var periods = []int{30, 90, MaxDays}

// History implements MarketReader.
func (c *Client) History(ctx context.Context, days int) (Answer[[]Day], error) {
	if err := checkDays(days); err != nil {
		return Answer[[]Day]{}, fmt.Errorf("%w: %w", read.ErrBadRequest, err)
	}
	for range attempts {
		known := c.last.closedDays.Load()
		missing := shared(days)
		if known != nil || days == 1 {
			at, own, err := c.lastDays(ctx, 1)
			if err != nil {
				return Answer[[]Day]{}, err
			}
			var all []Day
			if all, missing = known.before(at, own, days); missing == 0 {
				return Answer[[]Day]{At: at.Block, Value: all}, nil
			}
		}
		filled, err := c.fill(ctx, known, days, missing)
		if err != nil {
			return Answer[[]Day]{}, err
		}
		if filled != nil {
			n := periodOf(filled.at.Block.Timestamp, days).days
			return Answer[[]Day]{At: filled.at.Block, Value: filled.days[len(filled.days)-n:]}, nil
		}
	}
	return Answer[[]Day]{}, fmt.Errorf("the past changed between reads: %w", ErrUnavailable)
}

// before joins the closed days and the last ones to the number of days that is asked for. If there are not enough,
// missing is how many days are to be read instead.
func (p *closedDays) before(at read.Moment, last []Day, days int) (all []Day, missing int) {
	wanted := periodOf(at.Block.Timestamp, days)
	first := wanted.first * day
	if last[0].Start <= first {
		return last[len(last)-wanted.days:], 0
	}
	if !p.still(at) || p.days[0].Start > first {
		return nil, shared(days)
	}
	if open := p.days[len(p.days)-1].Start; open < last[0].Start {
		return nil, min(shared(days), int((last[len(last)-1].Start-open)/day)+1)
	}
	from := int((first - p.days[0].Start) / day)
	end := int((last[0].Start - p.days[0].Start) / day)
	return slices.Concat(p.days[from:end], last), 0
}

// fillTimeout bounds a read of the past. Nodes do not keep a block much longer.
const fillTimeout = time.Minute

// fill reads the missing days, or waits while another caller does. Only the caller that read them gets them as a
// result. A read goes on when its caller gives up, or in a large market each retry would begin anew and never end.
func (c *Client) fill(ctx context.Context, known *closedDays, days, missing int) (*closedDays, error) {
	select {
	case c.filling <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if c.last.closedDays.Load() != known {
		<-c.filling
		return nil, nil
	}
	var result *closedDays
	filled := make(chan error, 1)
	go func() {
		defer func() { <-c.filling }()
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillTimeout)
		defer cancel()
		go func() {
			select {
			case <-c.over:
				cancel()
			case <-own.Done():
			}
		}()
		var err error
		result, err = c.readPast(own, known, days, missing)
		filled <- err
	}()
	select {
	case err := <-filled:
		return result, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Client) readPast(ctx context.Context, known *closedDays, days, missing int) (*closedDays, error) {
	for range attempts {
		at, last, err := c.lastDays(ctx, missing)
		if err != nil {
			return nil, err
		}
		keep := shared(days)
		if known.still(at) {
			keep = max(keep, len(known.days))
		}
		var all []Day
		if all, missing = known.before(at, last, keep); missing == 0 {
			now := &closedDays{at: at, days: all}
			c.last.closedDays.Store(now)
			return now, nil
		}
	}
	return nil, fmt.Errorf("the past changed between reads: %w", ErrUnavailable)
}

// still reports whether the closed days are valid at a moment: there are some, and no block was reverted since.
func (p *closedDays) still(at read.Moment) bool { return p != nil && p.at.Reverts == at.Reverts }

// shared is the number of days that is read for a request of some days: one of periods.
func shared(days int) int {
	return periods[slices.IndexFunc(periods, func(n int) bool { return n >= days })]
}
