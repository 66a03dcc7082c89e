package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// limitBody refuses a body of more bytes, as far as its length tells, and lets no more of another be read.
func limitBody(w http.ResponseWriter, r *http.Request, most int64) error {
	if r.ContentLength > most {
		return bodyTooLarge(most)
	}
	if r.ContentLength != 0 {
		r.Body = http.MaxBytesReader(w, r.Body, most)
	}
	return nil
}

func bodyTooLarge(limit int64) *Error {
	return &Error{Code: BodyTooLarge, Message: "the body may have at most " + strconv.FormatInt(limit, 10) + " bytes"}
}

// Body reads the body.
func (req *Request) Body() ([]byte, error) {
	body, err := io.ReadAll(req.HTTP.Body)
	if err == nil {
		return body, nil
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, bodyTooLarge(large.Limit)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return nil, err
	}
	return nil, invalid("body", "ends early or is malformed")
}

// JSON decodes the body, a single JSON object without unknown fields, into v.
func (req *Request) JSON(v any) error {
	media, params, err := mime.ParseMediaType(req.HTTP.Header.Get("Content-Type"))
	if charset := params["charset"]; err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return &Error{Code: UnsupportedMediaType, Message: "the body must be application/json"}
	}
	dec := json.NewDecoder(req.HTTP.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return bodyFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return bodyTooLarge(large.Limit)
		}
		return invalid("body", "must be a single JSON object")
	}
	return nil
}

func bodyFault(err error) error {
	var (
		large *http.MaxBytesError
		kind  *json.UnmarshalTypeError
	)
	switch {
	case errors.As(err, &large):
		return bodyTooLarge(large.Limit)
	case errors.As(err, &kind) && kind.Field != "":
		return invalid(kind.Field, "must not be a JSON %s", kind.Value)
	}
	// encoding/json has no error type for this case.
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid(strings.Trim(name, `"`), "is not a field of this body")
	}
	return invalid("body", "must be a JSON object")
}
