package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetcher polls a client of a Consumer for some of its readers.
type fetcher struct {
	c     *Consumer
	cl    *kgo.Client
	conns *dialer
	ended chan struct{}

	// Guarded by the Consumer's mu:
	changes   []func()           // of the set of partitions
	interrupt context.CancelFunc // of the running poll
}

func (c *Consumer) newFetcher(cfg Config, name string, wait time.Duration) (*fetcher, error) {
	cl, conns, err := cfg.client(name, nil, append(committed(wait, c.opt.MaxBytes, c.opt.MaxPartitionBytes),
		kgo.MetadataMinAge(leastMetadataAge))...) // a newly opened partition waits for metadata
	if err != nil {
		return nil, err
	}
	return &fetcher{c: c, cl: cl, conns: conns, ended: make(chan struct{}), interrupt: func() {}}, nil
}

// change calls do between two polls of the client. The Consumer's mu is held.
func (f *fetcher) change(do func()) {
	f.changes = append(f.changes, do)
	f.interrupt()
}

// add has the client read for some readers from where they are. The Consumer's mu is held.
func (f *fetcher) add(readers []*PartitionReader) {
	f.change(func() {
		if offsets := f.begin(readers); len(offsets) > 0 {
			f.cl.AddConsumePartitions(offsets)
		}
	})
}

// begin returns the offsets at which the client starts to read for the readers that are still open, and delivers to them from then on.
func (f *fetcher) begin(readers []*PartitionReader) map[string]map[int32]kgo.Offset {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	offsets := map[string]map[int32]kgo.Offset{}
	for _, r := range readers {
		if f.c.open[r.at] != r {
			continue
		}
		if offsets[r.at.topic] == nil {
			offsets[r.at.topic] = map[int32]kgo.Offset{}
		}
		offsets[r.at.topic][r.at.partition] = kgo.NewOffset().At(r.next)
		r.fetched = true
	}
	return offsets
}

// run polls the client until Close.
func (f *fetcher) run() {
	defer close(f.ended)
	for {
		ctx, changes := f.next()
		if ctx == nil {
			return
		}
		for _, do := range changes {
			do()
		}
		fetches := f.cl.PollFetches(ctx)
		if fetches.IsClientClosed() {
			return
		}
		f.c.deliver(f, fetches)
	}
}

// next returns the changes to make before the next poll, and its context; nil: there is no next poll.
func (f *fetcher) next() (ctx context.Context, changes []func()) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.interrupt()
	if f.c.closed {
		return nil, nil
	}
	ctx, f.interrupt = context.WithCancel(context.Background())
	changes, f.changes = f.changes, nil
	return ctx, changes
}
