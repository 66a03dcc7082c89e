package httpapi

import (
	"context"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// Stream is the connection of a streaming response. It belongs to one goroutine.
type Stream struct {
	Context context.Context //nolint:containedctx // of the connection: done when the client disconnects

	client  *client
	unsent  *unsent
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	written int
}

// Send writes and flushes pieces, each within the write timeout. It fails if the client reads nothing for that
// long, and with an *Error, before it has written anything, if too much is to be read already, by the client or in all:
// then what is short can still be sent.
func (s *Stream) Send(pieces ...[]byte) error {
	size := sizeOf(pieces)
	if err := s.unsent.take(s.client, size); err != nil {
		return err
	}
	defer s.unsent.give(s.client, size)
	return s.send(pieces)
}

// SendShared is Send of what is in memory once for many streams: it counts for the client alone.
func (s *Stream) SendShared(pieces ...[]byte) error {
	size := sizeOf(pieces)
	if err := s.unsent.takeShared(s.client, size); err != nil {
		return err
	}
	defer s.unsent.giveShared(s.client, size)
	return s.send(pieces)
}

func sizeOf(pieces [][]byte) (size int) {
	for _, piece := range pieces {
		size += len(piece)
	}
	return size
}

func (s *Stream) send(pieces [][]byte) error {
	for _, piece := range pieces {
		// A writer without deadlines is one of a test and does not block.
		_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
		n, err := s.w.Write(piece)
		s.written += n
		if err != nil {
			return err
		}
	}
	return s.control.Flush()
}

// Read runs what costs a stream as much as a request: in turn with the client's other reads, and counted as one of
// them. fn returns how many bytes it is about to send. An error: ctx was done before its turn.
func (s *Stream) Read(ctx context.Context, fn func() (size int)) error {
	if err := s.client.read(ctx); err != nil {
		return err
	}
	defer s.client.done()
	began := time.Now()
	size := fn()
	s.client.worked(time.Since(began))
	s.client.sends(size)
	return nil
}

// enterStream counts a stream in, unless there are too many, in all or of this client.
func (a *API) enterStream(from *client) error {
	if err := a.clients.enterStream(from); err != nil {
		a.metrics.refused.Inc()
		return err
	}
	if a.streams.Add(1) > int64(a.cfg.MaxStreams) {
		a.streams.Add(-1)
		a.clients.leaveStream(from)
		a.metrics.refused.Inc()
		return &Error{Code: UpstreamUnavailable, Message: "too many streams at once, ask again shortly"}
	}
	return nil
}

// stream sends the body of a response whose headers are out.
func (a *API) stream(w http.ResponseWriter, r *http.Request, x *exchange) {
	a.metrics.streams.Inc()
	s := &Stream{Context: r.Context(), client: x.client, unsent: &a.unsent, w: w, control: http.NewResponseController(w), timeout: a.cfg.WriteTimeout}
	_ = s.control.SetReadDeadline(time.Time{}) // that of the request would end its context
	defer func() {
		x.res.written = s.written
		a.streams.Add(-1)
		a.clients.leaveStream(x.client)
		a.metrics.streams.Dec()
		if v := recover(); v != nil {
			a.metrics.panics.Inc()
			a.log.Error("stream panicked", zap.String("request_id", x.req.ID), zap.Any("panic", v), zap.Stack("stack"))
		}
	}()
	x.res.Stream(s)
}
