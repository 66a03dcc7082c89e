package hotcache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// write moves a partition to another state: by write.lua if rows change, otherwise by move.lua together with others.
type write struct {
	partition int32
	state     *written
	from, to  string
	barrier   string
	keep      int
	entries   []entry
	job       *work
}

// moves reports whether move.lua can do it.
func (b *write) moves() bool { return len(b.entries) == 0 && b.barrier != "" && b.keep > 0 }

func (w *Writer) command(ctx context.Context, pipe redis.Pipeliner, b *write) *redis.Cmd {
	args := make([]any, 0, 6+2*len(b.entries))
	args = append(args, b.partition, b.from, b.to, b.barrier, b.keep, w.keys.orders)
	for _, e := range b.entries {
		args = append(args, e.key, e.row)
	}
	keys := []string{w.keys.meta, w.keys.rows + strconv.Itoa(int(b.partition))}
	return writeScript.EvalSha(ctx, pipe, keys, args...)
}

// run executes writes in one round trip, each of them atomically. The errors are in the same order; the outcome
// of a failed write is unknown.
func (w *Writer) run(ctx context.Context, batch []*write) []error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
	defer cancel()
	errs := w.pipeline(ctx, batch)
	var missing []int // not executed
	var again []*write
	for i, err := range errs {
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			missing, again = append(missing, i), append(again, batch[i])
		}
	}
	if len(again) == 0 {
		return errs
	}
	var loaded []error
	if err := errors.Join(writeScript.Load(ctx, w.client).Err(), moveScript.Load(ctx, w.client).Err()); err != nil {
		for range again {
			loaded = append(loaded, fmt.Errorf("load scripts: %w", err))
		}
	} else {
		loaded = w.pipeline(ctx, again)
	}
	for k, i := range missing {
		errs[i] = loaded[k]
	}
	return errs
}

// errMismatch: the partition's state in Redis was not the one that the write starts from.
var errMismatch = errors.New("redis does not hold the expected state")

// pipeline runs write.lua for each write with rows, and move.lua once for all others.
func (w *Writer) pipeline(ctx context.Context, batch []*write) []error {
	var (
		commands = make([]*redis.Cmd, len(batch))
		moves    []any
		pipe     = w.client.Pipeline()
	)
	for i, b := range batch {
		if b.moves() {
			moves = append(moves, b.partition, b.from, b.to, b.barrier, b.keep)
		} else {
			commands[i] = w.command(ctx, pipe, b)
		}
	}
	var move *redis.Cmd
	if len(moves) > 0 {
		move = moveScript.EvalSha(ctx, pipe, []string{w.keys.meta}, moves...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	errs := make([]error, len(batch))
	var moved []any
	var failed error
	if move != nil {
		if moved, failed = move.Slice(); failed == nil && len(moved) != len(moves)/5 {
			failed = fmt.Errorf("reply has %d elements", len(moved))
		}
	}
	for i, b := range batch {
		if !b.moves() {
			errs[i] = outcome(commands[i])
			continue
		}
		if errs[i] = failed; failed != nil {
			continue
		}
		if moved[0] != int64(1) {
			errs[i] = errMismatch
		}
		moved = moved[1:]
	}
	return errs
}

// outcome is that of write.lua.
func outcome(c *redis.Cmd) error {
	reply, err := c.Slice()
	switch {
	case err != nil:
		return err
	case len(reply) != 2:
		return fmt.Errorf("reply has %d elements", len(reply))
	case reply[0] != int64(1):
		return errMismatch
	}
	return nil
}

// execute writes the changes of one or more commits, and records the results.
func (w *Writer) execute(ctx context.Context, batch []*write) error {
	var failed error
	for i, err := range w.run(ctx, batch) {
		b := batch[i]
		switch {
		case err == nil:
			w.wrote(b)
		case errors.Is(err, errMismatch):
			w.metrics.writes.WithLabelValues("mismatch").Inc()
			w.lost(b.partition, b.state, "mismatch")
		default:
			w.metrics.errors.Inc()
			w.lost(b.partition, b.state, "error")
			failed = fmt.Errorf("write partition %d: %w", b.partition, err)
		}
	}
	return failed
}

// wrote records a write after which readers accept the state.
func (w *Writer) wrote(b *write) {
	b.state.state, b.state.reverts, b.state.at = b.to, b.job.owner.Reverts, time.Now()
	w.metrics.writes.WithLabelValues("applied").Inc()
	w.metrics.rows.Add(float64(len(b.entries)))
	w.metrics.ready.WithLabelValues(strconv.Itoa(int(b.partition))).Set(float64(b.job.at.Number))
}
