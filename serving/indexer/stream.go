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

// stream sends the market's changes as server-sent events, as described in the OpenAPI document. It starts at
// Last-Event-ID, or now; with=pipeline adds the state of the pipeline. Where the head is not known, as in a takeover,
// it waits with its headers sent: a browser's EventSource never comes back after a 503, but does to a stream that
// ended.
func (x *Indexer) stream(_ context.Context, req *httpapi.Request, res *httpapi.Response) error {
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
	res.SetHeader("Content-Type", "text/event-stream")
	res.SetHeader("Cache-Control", "no-store")
	res.Stream = s.run
	return nil
}

// subscription is one client of /stream. It belongs to its connection's goroutine.
type subscription struct {
	x        *Indexer
	conn     *httpapi.Stream
	pipeline bool
	have     *query.Moment // what the client has; nil: nothing
	own      bool          // what is sent next was made for this client
	tenure   uint64        // tenure of the feed when it had that; 0: from the client's ID
}

func (s *subscription) set(have query.Moment, tenure uint64) { s.have, s.tenure = &have, tenure }

const (
	keepAlive     = 15 * time.Second // a comment, so that proxies do not close an idle connection
	pipelineEvery = time.Second
	beginWait     = 5 * time.Second // for the first block; after that another node may know one
)

// run sends until the client disconnects, falls behind, MaxStreamAge is over, or there is nothing to begin with.
func (s *subscription) run(conn *httpapi.Stream) {
	s.conn = conn
	s.x.feed.join()
	defer s.x.feed.leave()
	age := s.x.cfg.MaxStreamAge
	ctx, cancel := context.WithTimeout(conn.Context, age-rand.N(age/8+1)) // randomised, so that streams do not all end at once
	defer cancel()
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	pipeline := time.NewTicker(pipelineEvery)
	defer pipeline.Stop()
	begin := time.NewTimer(s.x.beginWait)
	defer begin.Stop()

	if conn.Send(s.appendPipeline([]byte("retry: 1000\n\n"))) != nil {
		return
	}
	for {
		news, moved, err := s.next(ctx)
		if len(news) > 0 && err == nil {
			err = s.send(news)
		} else if len(news) > 0 {
			_ = conn.Send(news...) // the last piece
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
		case <-begin.C:
			if s.tenure == 0 { // the feed has not begun
				return
			}
		case <-ctx.Done():
			return
		}
		if other != nil && conn.Send(other) != nil {
			return
		}
	}
}

// send fails if the client has disconnected, or does not read. A client with too many unread bytes gets an error event,
// if there is room for that.
func (s *subscription) send(news net.Buffers) error {
	send := s.conn.SendShared
	if s.own {
		s.own, send = false, s.conn.Send
	}
	err := send(news...)
	if _, much := errors.AsType[*httpapi.Error](err); much {
		s.x.metrics.dropped.Inc()
		_ = s.conn.Send([]byte(droppedEvent))
	}
	return err
}

// next is what the client lacks, or nothing and a channel that is closed when there may be more. With an error
// it is the last piece.
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
	switch {
	case errors.Is(err, errElsewhere):
		return s.resume(ctx, s.tenure)
	case errors.Is(err, errBehind):
		s.x.metrics.dropped.Inc()
		news = net.Buffers{[]byte(droppedEvent)}
	}
	return news, moved, err
}

// appendPipeline appends the state of the pipeline, if requested and known.
func (s *subscription) appendPipeline(b []byte) []byte {
	if !s.pipeline {
		return b
	}
	head, err := s.x.reader.Head(context.Background()) // uses no network
	if err != nil {
		return b
	}
	return endEvent(appendPipeline(startEvent(b, "pipeline"), s.x.cfg.ChainID, head, s.x.reader.Holders()))
}
