package indexer

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// stream is the market as it changes, as server-sent events: the description says what each is. It begins
// where Last-Event-ID says, or now; with=pipeline adds the state of the pipeline.
func (x *Indexer) stream(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	s := &subscription{x: x, pipeline: httpapi.Enum[uint8](req.Query("with"), []string{"pipeline"}) != nil}
	if err := req.Err(); err != nil {
		return err
	}
	if id := req.HTTP.Header.Get("Last-Event-ID"); id != "" {
		have, ok := x.ids.parse(id)
		if !ok {
			return &httpapi.Error{Code: httpapi.InvalidInput, Message: `"Last-Event-ID" must be the ID of an event of this stream`}
		}
		s.have = &have
	}
	head, err := x.reader.Head(ctx)
	if err != nil {
		return readError("the head", err)
	}
	asOf(res.Header, head.Indexed)
	res.SetHeader("Content-Type", "text/event-stream")
	res.SetHeader("Cache-Control", "no-store")
	res.Stream = s.run
	return nil
}

// subscription is one caller of /stream. It belongs to the goroutine of its connection.
type subscription struct {
	x        *Indexer
	pipeline bool
	have     *query.Moment // what the caller has; nil: nothing
	tenure   uint64        // of the feed, while it had that; 0: an ID of the caller's
}

func (s *subscription) set(have query.Moment, tenure uint64) { s.have, s.tenure = &have, tenure }

const (
	keepAlive     = 15 * time.Second // a comment, lest anybody in between thinks the connection dead
	pipelineEvery = time.Second
	resumeWait    = 5 * time.Second // for processors that are behind what the caller has
	resumeEvery   = 50 * time.Millisecond
)

// run sends until the caller leaves, falls behind, or has been here for long enough.
func (s *subscription) run(conn *httpapi.Stream) {
	s.x.feed.join()
	defer s.x.feed.leave()
	age := s.x.cfg.MaxStreamAge
	ctx, cancel := context.WithTimeout(conn.Context, age-rand.N(age/8+1)) // not all at once
	defer cancel()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	pipeline := time.NewTicker(pipelineEvery)
	defer pipeline.Stop()

	if conn.Send(s.appendPipeline([]byte("retry: 1000\n\n"))) != nil {
		return
	}
	for {
		news, moved, err := s.next(ctx)
		if len(news) > 0 && conn.Send(news...) != nil {
			return // the caller is gone, or has taken nothing for long
		}
		if err != nil {
			return
		}
		if len(news) > 0 {
			alive.Reset(keepAlive)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		var other []byte
		select {
		case <-moved:
		case <-alive.C:
			other = []byte(":\n\n")
		case <-pipeline.C:
			other = s.appendPipeline(nil)
		case <-ctx.Done():
			return
		}
		if other != nil && conn.Send(other) != nil {
			return
		}
	}
}

// next is what the caller lacks, or nothing and a channel that says when there may be more. With an error
// it is the last.
func (s *subscription) next(ctx context.Context) (news net.Buffers, moved <-chan struct{}, err error) {
	feed := s.x.feed
	if s.have != nil && s.tenure == 0 {
		tenure, ok, moved := feed.adopt(s)
		switch {
		case moved != nil:
			return nil, moved, nil
		case !ok:
			return s.resume(ctx, tenure)
		}
		s.x.metrics.resumed.WithLabelValues(resumedFeed).Inc()
		s.tenure = tenure
	}
	news, moved, err = feed.after(s)
	if errors.Is(err, errBehind) {
		s.x.metrics.dropped.Inc()
		news = net.Buffers{[]byte(droppedEvent)}
	}
	return news, moved, err
}

// resume asks the processors for what the feed does not have: all that changed since the caller's moment.
func (s *subscription) resume(ctx context.Context, tenure uint64) (net.Buffers, <-chan struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, resumeWait)
	defer cancel()
	tick := time.NewTicker(resumeEvery)
	defer tick.Stop()
	for {
		c, err := s.x.reader.Changes(ctx, s.have)
		if err == nil {
			s.x.metrics.resumed.WithLabelValues(resumedProcessors).Inc()
			s.set(c.At, tenure)
			head, _ := s.x.reader.Head(ctx) // of which nothing but the chain's head is taken
			b := appendPoolEvent(appendDealEvents(nil, &c), &c.PoolOverview)
			return net.Buffers{s.x.ids.appendBlockEvent(appendEpochEvent(b, &c.PoolOverview), c.At, head.Latest)}, nil, nil
		}
		if errors.Is(err, query.ErrUnavailable) {
			select {
			case <-tick.C:
				continue
			case <-ctx.Done():
			}
		}
		s.x.metrics.resumed.WithLabelValues(resumedNot).Inc()
		s.have = nil // it begins anew, and is told so
		return net.Buffers{[]byte(resetEvent)}, nil, nil
	}
}

// appendPipeline appends the state of the pipeline, if the caller asked for it and it is known.
func (s *subscription) appendPipeline(b []byte) []byte {
	if !s.pipeline {
		return b
	}
	head, err := s.x.reader.Head(context.Background()) // without a network
	if err != nil {
		return b
	}
	return endEvent(appendPipeline(startEvent(b, "pipeline"), s.x.cfg.ChainID, head, s.x.reader.Holders()))
}
