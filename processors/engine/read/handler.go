package read

import (
	"errors"
	"fmt"
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

// NewHandler serves applications to the routers of other nodes. It does not authenticate requests: see
// Authorized.
func NewHandler(logger *zap.Logger, apps ...Served) http.Handler {
	nodes := map[string]local{}
	for _, a := range apps {
		nodes[a.Application.Name] = local{source: a.Source, app: a.Application}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		req, err := decodeRequest(http.MaxBytesReader(w, r.Body, maxRequestBytes))
		var node local
		if err == nil {
			if node = nodes[req.Application]; node.source == nil {
				err = fmt.Errorf("%w: this node does not run application %q", ErrBadRequest, req.Application)
			} else {
				err = node.resolve(req)
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a, err := node.ask(r.Context(), req)
		if err == nil {
			err = write(w, a)
		}
		if lacking, ok := errors.AsType[*lackingError](err); ok {
			w.Header().Set(lackingHeader, strconv.Itoa(int(lacking.partition)))
		}
		switch {
		case err == nil || r.Context().Err() != nil:
		case errors.Is(err, ErrExpired):
			http.Error(w, err.Error(), http.StatusGone)
		case errors.Is(err, ErrUnavailable):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case errors.Is(err, ErrBadRequest):
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			logger.Error("answer a read", zap.String("application", req.Application), zap.String("operation", req.Operation), zap.Error(err))
			http.Error(w, "internal", http.StatusInternalServerError)
		}
	})
	return mux
}

// write sends the response. It fails before the first byte or not at all: a broken connection is noticed by the
// client.
func write(w http.ResponseWriter, a *Response) error {
	body, err := encodeResponse(a)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
	return nil
}
