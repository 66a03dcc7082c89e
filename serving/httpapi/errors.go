package httpapi

import (
	"fmt"
	"net/http"
	"time"
)

// Code is an error as callers see it: what went wrong, and by the table the status that goes with it.
type Code string

// The codes of the market services.
const (
	InvalidInput         Code = "INVALID_INPUT"
	InvalidCursor        Code = "INVALID_CURSOR"
	InvalidSignature     Code = "INVALID_SIGNATURE"
	SignatureExpired     Code = "SIGNATURE_EXPIRED"
	SignatureReused      Code = "SIGNATURE_REUSED"
	NotFound             Code = "NOT_FOUND"
	DealNotFound         Code = "DEAL_NOT_FOUND"
	AssetNotFound        Code = "ASSET_NOT_FOUND"
	PositionNotFound     Code = "POSITION_NOT_FOUND"
	MethodNotAllowed     Code = "METHOD_NOT_ALLOWED"
	BodyTooLarge         Code = "BODY_TOO_LARGE"
	UnsupportedMediaType Code = "UNSUPPORTED_MEDIA_TYPE"
	RateLimited          Code = "RATE_LIMITED"
	Internal             Code = "INTERNAL"
	UpstreamUnavailable  Code = "UPSTREAM_UNAVAILABLE"
	StaleIndexer         Code = "STALE_INDEXER"
	PriceUnreliable      Code = "PRICE_UNRELIABLE"
)

var statuses = map[Code]int{
	InvalidInput:         http.StatusBadRequest,
	InvalidCursor:        http.StatusBadRequest,
	InvalidSignature:     http.StatusUnauthorized,
	SignatureExpired:     http.StatusUnauthorized,
	SignatureReused:      http.StatusUnauthorized,
	NotFound:             http.StatusNotFound,
	DealNotFound:         http.StatusNotFound,
	AssetNotFound:        http.StatusNotFound,
	PositionNotFound:     http.StatusNotFound,
	MethodNotAllowed:     http.StatusMethodNotAllowed,
	BodyTooLarge:         http.StatusRequestEntityTooLarge,
	UnsupportedMediaType: http.StatusUnsupportedMediaType,
	RateLimited:          http.StatusTooManyRequests,
	Internal:             http.StatusInternalServerError,
	UpstreamUnavailable:  http.StatusServiceUnavailable,
	StaleIndexer:         http.StatusServiceUnavailable,
	PriceUnreliable:      http.StatusServiceUnavailable,
}

// Status is the HTTP status of the code; a code outside the table is a 500.
func (c Code) Status() int {
	if status, ok := statuses[c]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// Error is an error that a caller may see. Every other error is answered as INTERNAL.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // for 429 and 503, rounded up to seconds; at least one second is sent
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// invalid is the error of a parameter: its message begins with the parameter's name.
func invalid(name, format string, args ...any) *Error {
	return &Error{Code: InvalidInput, Message: quoteName(name) + " " + fmt.Sprintf(format, args...)}
}

const maxQuotedName = 64 // bytes: what a caller made up is not sent back at any length

func quoteName(name string) string {
	if len(name) > maxQuotedName {
		name = name[:maxQuotedName]
	}
	return fmt.Sprintf("%q", name)
}
