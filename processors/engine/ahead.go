package engine

import (
	"context"
	"time"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// watch reads the barriers of the raw topic, from an offset after the barrier of a block on.
func (f *follower) watch(ctx context.Context, from int64, at topics.BlockRef) error {
	read, err := f.n.consumer.Open(f.n.input, f.r.partition, from)
	if err != nil {
		return err
	}
	defer read.Close()
	end, err := f.n.lastOffset(ctx, f.n.input, f.r.partition)
	if err != nil {
		return err
	}
	var (
		records []*kafka.Record
		decoder topics.RawDecoder
		c       = commitBarrier{from: from}
		kept    = true
	)
	for {
		if records, err = read.Poll(ctx, records); err != nil {
			return err
		}
		for _, rec := range records {
			// A record with a key is a log; one that cannot be decoded counts as a log.
			var b *topics.BlockEnd
			if len(rec.Key) == 0 {
				switch raw, _ := decoder.Decode(rec.Value); raw := raw.(type) {
				case *topics.BlockEnd:
					if b = raw; b.Linked && !b.Block.Same(at) && !b.Previous.Same(at) {
						return missing(b, at) // it would be published, although its owner stops here
					}
					at = b.Block
				case *topics.BlockRevert:
					at = raw.Head
				}
			}
			c.touched = c.touched || b == nil
			if kept = kept && len(c.records) < maxRecords; kept {
				c.records = append(c.records, rec)
			}
			if b == nil || !b.Commit {
				continue
			}
			c.next, c.at, c.head, c.observedMs = rec.Offset+1, b.Block, b.Head, rec.Timestamp.UnixMilli()
			if !kept || !near(b) {
				c.records = nil
			}
			c.silence = ownerSilence
			if f.n.clock.age(rec.Timestamp, rec.Offset > end) >= tipAge {
				c.silence = lateSilence
			}
			if err := f.wait(ctx, c); err != nil {
				return err
			}
			c, kept = commitBarrier{from: c.next}, true
		}
	}
}

// wait queues a barrier until the owner's progress reaches it, and blocks while the queue is full.
func (f *follower) wait(ctx context.Context, c commitBarrier) error {
	for {
		f.mu.Lock()
		if len(f.ahead) < maxAhead {
			f.queue(c)
			f.mu.Unlock()
			return nil
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.room:
		}
	}
}

// queue adds a barrier.
func (f *follower) queue(c commitBarrier) {
	c.due = time.Now().Add(c.silence)
	if c.touched && c.records != nil && f.speculated() >= maxSpeculative {
		c.records = nil
	}
	if n := len(f.ahead); n > 0 && !c.touched && !f.ahead[n-1].touched && f.ahead[n-1].next <= f.shown.next {
		c.from = f.ahead[n-1].from // it stands for both
		f.ahead[n-1] = c
	} else {
		f.ahead = append(f.ahead, c)
	}
	f.advance()
	if c.touched && c.records != nil && c.next > f.shown.next {
		time.AfterFunc(c.silence, f.look)
	}
}

// speculated is how many of the queued barriers the follower may apply.
func (f *follower) speculated() (n int) {
	for i := range f.ahead {
		if f.ahead[i].touched {
			n++
		}
	}
	return n
}
