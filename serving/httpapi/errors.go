package httpapi

import (
	"fmt"
	"net/http"
	"time"
)

// Code is an error code of the API and its HTTP status. Services add their own codes.
type Code struct {
	Name   string // NOT_FOUND
	Status int    // of HTTP
}

// Codes that every service has.
var (
	InvalidInput         = Code{"INVALID_INPUT", http.StatusBadRequest}
	InvalidCursor        = Code{"INVALID_CURSOR", http.StatusBadRequest}
	NotFound             = Code{"NOT_FOUND", http.StatusNotFound}
	MethodNotAllowed     = Code{"METHOD_NOT_ALLOWED", http.StatusMethodNotAllowed}
	BodyTooLarge         = Code{"BODY_TOO_LARGE", http.StatusRequestEntityTooLarge}
	UnsupportedMediaType = Code{"UNSUPPORTED_MEDIA_TYPE", http.StatusUnsupportedMediaType}
	RateLimited          = Code{"RATE_LIMITED", http.StatusTooManyRequests}
	Internal             = Code{"INTERNAL", http.StatusInternalServerError}
	UpstreamUnavailable  = Code{"UPSTREAM_UNAVAILABLE", http.StatusServiceUnavailable}
)

// Error is an error for the client. Any other error is answered as INTERNAL.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // for 429 and 503, rounded up to at least one second
}

func (e *Error) Error() string { return e.Code.Name + ": " + e.Message }

// invalid is the error of a parameter: its message begins with the parameter's name.
func invalid(name, format string, args ...any) *Error {
	return &Error{Code: InvalidInput, Message: quoteName(name) + " " + fmt.Sprintf(format, args...)}
}

const maxQuotedName = 64 // bytes: the client's text is truncated

func quoteName(name string) string {
	if len(name) > maxQuotedName {
		name = name[:maxQuotedName]
	}
	return fmt.Sprintf("%q", name)
}
