package read

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"go.uber.org/zap"
)

// Path is where a node serves its read API.
const Path = "/read/v1"

const contentType = "application/octet-stream"

// lackingHeader names the partition that a request failed on.
const lackingHeader = "X-Lacking-Partition"

// Served is an application and this node's partitions of it.
type Served struct {
	Source      Source
	Application Application
}

// handler serves applications to other nodes: what is posted, and what comes over upgraded connections.
type handler struct {
	nodes  map[string]local // by application
	logger *zap.Logger
}

// NewHandler serves applications to the routers of other nodes. It does not authenticate requests: see
// Authorized. Connections that it has taken over end with ctx.
func NewHandler(ctx context.Context, logger *zap.Logger, apps ...Served) http.Handler {
	h := &handler{nodes: map[string]local{}, logger: logger}
	for _, a := range apps {
		h.nodes[a.Application.Name] = local{source: a.Source, app: a.Application}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, h.post)
	mux.HandleFunc("GET "+Path, func(w http.ResponseWriter, r *http.Request) {
		h.upgrade(ctx, w, r)
	})
	return mux
}

func (h *handler) post(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	var body []byte
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrBadRequest, err)
	} else {
		body, err = h.answer(r.Context(), raw, make([]byte, 0, 4<<10))
	}
	switch {
	case err == nil:
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // a broken connection is noticed by the client
	case r.Context().Err() == nil:
		if lacking, ok := errors.AsType[*lackingError](err); ok {
			w.Header().Set(lackingHeader, strconv.Itoa(int(lacking.partition)))
		}
		status, text := refusal(err)
		http.Error(w, text, status)
	}
}

// answer appends the response to a request.
func (h *handler) answer(ctx context.Context, raw, b []byte) ([]byte, error) {
	req, err := decodeRequest(raw)
	if err != nil {
		return b, err
	}
	node := h.nodes[req.Application]
	if node.source == nil {
		return b, fmt.Errorf("%w: this node does not run application %q", ErrBadRequest, req.Application)
	}
	if err := node.resolve(req); err != nil {
		return b, err
	}
	a, err := node.ask(ctx, req)
	if err == nil {
		b, err = appendResponse(b, a)
	}
	if status, _ := refusal(err); err != nil && status == http.StatusInternalServerError && ctx.Err() == nil {
		h.logger.Error("cannot answer a read", zap.String("application", req.Application), zap.String("operation", req.Operation), zap.Error(err))
	}
	return b, err
}

// refusal is what another node is told of an error.
func refusal(err error) (status int, text string) {
	switch {
	case errors.Is(err, ErrExpired):
		status = http.StatusGone
	case errors.Is(err, ErrUnavailable):
		status = http.StatusServiceUnavailable
	case errors.Is(err, ErrBadRequest):
		status = http.StatusBadRequest
	default:
		return http.StatusInternalServerError, "internal"
	}
	return status, err.Error()
}
