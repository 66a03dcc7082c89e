package query

import (
	"errors"
	"net/http"
	"strconv"

	"go.uber.org/zap"
)

// Path is where a node serves its read API.
const Path = "/query/v1"

const contentType = "application/x-gob"

// lackingHeader names the partition that an answer failed on.
const lackingHeader = "X-Lacking-Partition"

// NewHandler serves the read API of a node to the routers of others. It is for the inside of a cluster:
// it answers whoever can reach it.
func NewHandler(source Source, logger *zap.Logger) http.Handler {
	node := local{source}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		req, err := decodeRequest(http.MaxBytesReader(w, r.Body, maxRequestBytes))
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
		case errors.Is(err, ErrGone):
			http.Error(w, err.Error(), http.StatusGone)
		case errors.Is(err, ErrUnavailable):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case errors.Is(err, errBadRequest):
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			logger.Error("answer a read", zap.Stringer("operation", req.Op), zap.Error(err))
			http.Error(w, "internal", http.StatusInternalServerError)
		}
	})
	return mux
}

// write sends the answer. It fails before the first byte or not at all: a connection that breaks is the
// other end's to notice.
func write(w http.ResponseWriter, a *answer) error {
	body, err := encodeAnswer(a)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
	return nil
}
