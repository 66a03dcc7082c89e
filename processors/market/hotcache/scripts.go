package hotcache

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// write is one run of write.lua.
type write struct {
	partition int32
	state     *written
	from, to  string
	barrier   string
	keep      int
	entries   []entry
	job       *work
}

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
	if len(errs) > 0 && redis.HasErrorPrefix(errs[0], "NOSCRIPT") { // none was executed
		if err := writeScript.Load(ctx, w.client).Err(); err != nil {
			for i := range errs {
				errs[i] = fmt.Errorf("load script: %w", err)
			}
			return errs
		}
		errs = w.pipeline(ctx, batch)
	}
	return errs
}

// errMismatch: the partition's state in Redis was not the one that the write starts from.
var errMismatch = errors.New("redis does not hold the expected state")

func (w *Writer) pipeline(ctx context.Context, batch []*write) []error {
	commands := make([]*redis.Cmd, len(batch))
	pipe := w.client.Pipeline()
	for i, b := range batch {
		commands[i] = w.command(ctx, pipe, b)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	errs := make([]error, len(batch))
	for i, c := range commands {
		reply, err := c.Slice()
		switch {
		case err != nil:
			errs[i] = err
		case len(reply) != 2:
			errs[i] = fmt.Errorf("reply has %d elements", len(reply))
		case reply[0] != int64(1):
			errs[i] = errMismatch
		}
	}
	return errs
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
