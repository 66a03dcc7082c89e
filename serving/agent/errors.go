package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// The service's own codes.
var (
	chainMismatch       = httpapi.Code{Name: "CHAIN_MISMATCH", Status: http.StatusBadRequest}
	dealNotFound        = httpapi.Code{Name: "DEAL_NOT_FOUND", Status: http.StatusNotFound}
	termsChanged        = httpapi.Code{Name: "TERMS_CHANGED", Status: http.StatusConflict}
	spendLimit          = httpapi.Code{Name: "SPEND_LIMIT", Status: http.StatusConflict}
	notFundable         = httpapi.Code{Name: "NOT_FUNDABLE", Status: http.StatusConflict}
	graceNotOver        = httpapi.Code{Name: "GRACE_NOT_OVER", Status: http.StatusConflict}
	simulationFailed    = httpapi.Code{Name: "SIMULATION_FAILED", Status: http.StatusConflict}
	insufficientBalance = httpapi.Code{Name: "INSUFFICIENT_BALANCE", Status: http.StatusConflict}
	nothingToWithdraw   = httpapi.Code{Name: "NOTHING_TO_WITHDRAW", Status: http.StatusConflict}
	staleIndexer        = httpapi.Code{Name: "STALE_INDEXER", Status: http.StatusServiceUnavailable} // as the indexer has it
	staleChain          = httpapi.Code{Name: "STALE_CHAIN", Status: http.StatusServiceUnavailable}
	staleValuation      = httpapi.Code{Name: "STALE_VALUATION", Status: http.StatusServiceUnavailable}
	deploymentMismatch  = httpapi.Code{Name: "DEPLOYMENT_MISMATCH", Status: http.StatusServiceUnavailable}
)

// retryable reports whether a retry may help: a wrong deployment stays wrong.
func retryable(code httpapi.Code) bool {
	return code.Status == http.StatusTooManyRequests || code.Status == http.StatusServiceUnavailable && code != deploymentMismatch
}

func refuse(code httpapi.Code, message string) error {
	return &httpapi.Error{Code: code, Message: message, RetryAfter: time.Second}
}

func invalid(message string) error { return refuse(httpapi.InvalidInput, message) }

// errMismatch says why contracts are not those of the deployment. Its text is sent to callers.
type errMismatch struct{ what string }

func (e *errMismatch) Error() string { return e.what }

func isMismatch(err error) bool {
	_, ok := errors.AsType[*errMismatch](err)
	return ok
}

// chainError maps an error of the chain client to an API error.
func chainError(err error) error {
	var (
		other    *chain.ChainError
		differ   *chain.DisagreementError
		mismatch *errMismatch
		known    *httpapi.Error
	)
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &mismatch):
		return refuse(deploymentMismatch, mismatch.what)
	case errors.As(err, &other):
		return refuse(deploymentMismatch, "the node is on another chain")
	case errors.As(err, &differ):
		return refuse(httpapi.UpstreamUnavailable, "nodes of the chain disagree about its latest block")
	case errors.Is(err, chain.ErrBlockGone):
		return refuse(httpapi.UpstreamUnavailable, "the chain was reorganised during the read, ask again")
	case errors.Is(err, chain.ErrDiffer):
		return refuse(httpapi.UpstreamUnavailable, "nodes of the chain say different things of one block, ask again shortly")
	}
	return refuse(httpapi.UpstreamUnavailable, "too few nodes of the chain respond, ask again shortly")
}

// indexError maps an error of the read API to an API error.
func indexError(err error) error {
	if errors.Is(err, query.ErrUnavailable) {
		return refuse(httpapi.UpstreamUnavailable, "no indexer can answer now, ask again shortly")
	}
	return err
}

// inputError is an invalid parameter: the service has one code for all of them.
func inputError(err error) error {
	var known *httpapi.Error
	if errors.As(err, &known) && known.Code == httpapi.InvalidCursor {
		return invalid(known.Message)
	}
	return err
}

// hungUp counts callers that did not wait for their answer, which is not an error of the service.
const hungUp = "HUNG_UP"

// codeName is the code that a caller sees of an error.
func codeName(err error) string {
	if err == nil {
		return "OK"
	}
	if known, ok := errors.AsType[*httpapi.Error](err); ok {
		return known.Code.Name
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return httpapi.UpstreamUnavailable.Name
	case errors.Is(err, context.Canceled):
		return hungUp
	}
	return httpapi.Internal.Name
}
