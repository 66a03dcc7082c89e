package indexer

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/market/query"
)

// feed reads the market's changes once for all clients of /stream, while there are any.
//
//	processors ── Changes(at) ──► frames ──► subscriptions, each at its own pace
//
// Invariants:
//  1. frames are contiguous: each begins where the previous one ends, the first at base. A frame is only for clients at
//     its beginning: it leaves out what changed back within it. A client at a block within a frame, or of another
//     branch, which it knows from another node, gets the changes since from the processors;
//  2. within a tenure, at ascends. When changes are not known, tenure is increased and all clients are told to
//     start over;
//  3. the buffer for slow clients is bounded. A client that needs a dropped frame is disconnected, so none
//     blocks the feed or others.
type feed struct {
	reader  query.Reader
	ids     *eventIDs
	metrics *metrics
	log     *zap.Logger

	mu        sync.Mutex
	moved     chan struct{} // closed when any of the fields below changes
	followers int
	closed    bool
	known     bool // base and at are valid
	tenure    uint64
	base, at  query.Moment
	frames    []frame
	size      int    // bytes in frames
	pool      []byte // the last pool event
	epoch     []byte
	snapshot  []byte // the initial events of a client, as of at
}

// frame is the events of one or more blocks.
type frame struct {
	at   query.Moment
	data []byte
}

const (
	feedEvery     = 25 * time.Millisecond // poll interval of the head, which needs no network
	maxFrames     = 512
	maxFrameBytes = 8 << 20
	maxPiece      = 256 << 10 // maximum bytes of a write, or of a frame
)

var (
	errBehind    = errors.New("the client fell behind")
	errElsewhere = errors.New("the client's position is not in the feed's buffer")
	errEnded     = errors.New("the stream has ended")
)

func newFeed(reader query.Reader, ids *eventIDs, m *metrics, log *zap.Logger) *feed {
	return &feed{reader: reader, ids: ids, metrics: m, log: log, moved: make(chan struct{}), tenure: 1}
}

// run follows the market until ctx is done, then ends all streams.
func (f *feed) run(ctx context.Context) error {
	defer f.close()
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.step(ctx)
		}
	}
}

// step publishes the changes since the last step, if there are clients.
func (f *feed) step(ctx context.Context) {
	f.mu.Lock()
	idle, known, at := f.followers == 0, f.known, f.at
	f.mu.Unlock()
	if idle {
		return
	}
	head, err := f.reader.Head(ctx)
	if err != nil || head.Indexed.Hash == (common.Hash{}) || known && head.Indexed.Same(at.Block) {
		return
	}
	since := &at
	if !known {
		since = nil
	}
	c, err := f.reader.Changes(ctx, since)
	switch {
	case err == nil:
		f.publish(&c, since, latest(head))
	case errors.Is(err, query.ErrMomentUnknown):
		f.log.Info("resetting all streams: changes are not known", zap.Uint64("block", at.Block.Number))
		f.metrics.restarts.Inc()
		f.restart()
	case ctx.Err() == nil && !errors.Is(err, query.ErrUnavailable):
		f.log.Error("cannot read changes", zap.Error(err))
	}
}

func (f *feed) publish(c *query.Changes, since *query.Moment, latest uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers == 0 {
		return
	}
	pool := appendPoolEvent(nil, &c.PoolOverview)
	epoch := appendEpochEvent(nil, &c.PoolOverview)
	block := f.ids.appendBlockEvent(nil, c.At, latest)
	if since == nil {
		f.known, f.base, f.frames, f.size = true, c.At, nil, 0
	} else {
		data := appendDealEvents(nil, c)
		if !bytes.Equal(pool, f.pool) {
			data = append(data, pool...)
		}
		if !bytes.Equal(epoch, f.epoch) {
			data = append(data, epoch...)
		}
		f.keep(frame{c.At, append(data, block...)})
	}
	f.at, f.pool, f.epoch = c.At, pool, epoch
	f.snapshot = append(append(append([]byte(nil), pool...), epoch...), block...)
	f.metrics.blocks.Inc()
	f.signal()
}

func (f *feed) keep(next frame) {
	f.frames = append(f.frames, next)
	f.size += len(next.data)
	for len(f.frames) > maxFrames || f.size > maxFrameBytes && len(f.frames) > 1 {
		f.base = f.frames[0].at
		f.size -= len(f.frames[0].data)
		f.frames[0].data = nil
		f.frames = f.frames[1:]
	}
}

// after returns the events that a client lacks, and updates its position; nil: none until the channel is
// closed. errElsewhere: the processors have them. All clients share the bytes.
func (f *feed) after(s *subscription) (news net.Buffers, moved <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return nil, nil, errEnded
	case !f.known:
		return nil, f.moved, nil
	case s.have == nil, s.tenure != f.tenure:
		if s.have != nil {
			news = append(news, []byte(resetEvent))
		}
		s.set(f.at, f.tenure)
		return append(news, f.snapshot), nil, nil
	case s.have.Before(f.base):
		return nil, nil, errBehind
	case f.at.Before(*s.have): // another node was ahead
		return nil, f.moved, nil
	}
	first, ok := f.lacks(*s.have)
	if !ok {
		return nil, nil, errElsewhere
	}
	size := 0
	for _, next := range f.frames[first:] {
		news = append(news, next.data)
		if size += len(next.data); size > maxPiece {
			s.set(next.at, f.tenure)
			return news, nil, nil
		}
	}
	if first < len(f.frames) {
		s.set(f.at, f.tenure)
	}
	return news, f.moved, nil
}

// lacks returns from which frame on a client lacks them that has what is as of a moment. False: none begins there, nor
// does the next.
func (f *feed) lacks(have query.Moment) (first int, ok bool) {
	first = len(f.frames)
	for first > 0 && have.Before(f.frames[first-1].at) {
		first--
	}
	if first == 0 {
		return 0, f.base.Same(have)
	}
	return first, f.frames[first-1].at.Same(have)
}

// adopt lets a client continue from a moment of this feed. False: the moment is unknown, or no longer buffered;
// moved says when that may change, if the feed knows nothing yet.
func (f *feed) adopt(s *subscription) (tenure uint64, ok bool, moved <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known && !f.closed {
		return 0, false, f.moved
	}
	_, ok = f.lacks(*s.have)
	return f.tenure, ok, nil
}

// follows reports whether a client at a moment of the tenure can continue with the feed's present and future frames.
func (f *feed) follows(at query.Moment, tenure uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known || f.tenure != tenure {
		return false
	}
	_, ok := f.lacks(at)
	return ok || f.at.Before(at)
}

// restart makes every client start over.
func (f *feed) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tenure++
	f.forget()
	f.signal()
}

func (f *feed) forget() {
	f.known, f.frames, f.size, f.snapshot, f.pool, f.epoch = false, nil, 0, nil, nil, nil
}

func (f *feed) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.followers++
}

// leave resets the feed after the last client.
func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers--; f.followers == 0 {
		f.forget()
	}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.signal()
}

func (f *feed) signal() {
	close(f.moved)
	f.moved = make(chan struct{})
}
