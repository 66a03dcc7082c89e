package support

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/x402"
)

// The service's own codes.
var (
	codePaymentRequired = httpapi.Code{Name: "PAYMENT_REQUIRED", Status: http.StatusPaymentRequired}
	codeReportLimit     = httpapi.Code{Name: "REPORT_LIMIT", Status: http.StatusTooManyRequests}
	codePending         = httpapi.Code{Name: "PAYMENT_PENDING", Status: http.StatusServiceUnavailable}
	codeConflict        = httpapi.Code{Name: "CONFLICT", Status: http.StatusConflict}
	codeUnauthorized    = httpapi.Code{Name: "UNAUTHORIZED", Status: http.StatusUnauthorized}
)

// exchange is a POST /reports in progress.
type exchange struct {
	client netip.Addr // invalid: no limits apply
	asks   bool       // it was counted as reading the payment chain
	body   []byte
	digest common.Hash
	signed *x402.Signed
	used   bool // the authorization is already used on the chain
}

// postReport makes the checks in order. Nothing is charged before the last of them.
func (s *Service) postReport(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	outcome, err := s.report(ctx, req, res)
	s.metrics.reports.WithLabelValues(outcome).Inc()
	return err
}

func (s *Service) report(ctx context.Context, req *httpapi.Request, res *httpapi.Response) (string, error) {
	x := &exchange{client: req.Client()}
	var err error
	if x.body, err = req.Body(); err != nil {
		return "size", err
	}
	x.digest = sha256.Sum256(x.body)
	header := req.HTTP.Header.Get(x402.HeaderSignature)
	if header == "" {
		return "unpaid", s.demand(res, nil)
	}
	if !s.checked.Load() {
		return "unready", s.refuse(res, errUnchecked)
	}
	if err := s.authorize(ctx, x, header); err != nil {
		return "payment", s.refuse(res, err)
	}
	found, err := s.find(ctx, x.signed.From, x.signed.Nonce)
	if err != nil {
		return "desk", s.unavailable()
	}
	before := found.Payment
	if before != nil && before.Status == desk.StatusVoid {
		before = nil
	}
	// The same request was accepted before: it is not validated again, for example against a head that is lower now.
	if before != nil && before.BodyDigest == x.digest && before.Status != desk.StatusReleased {
		return "replay", s.await(ctx, x, res)
	}
	report, err := s.parse(ctx, req, x.body)
	if err != nil {
		return "body", err
	}
	if before != nil && before.BodyDigest != x.digest {
		return "replay", conflict()
	}
	return s.accept(ctx, x, report, found, res)
}

// accept takes the payment of a valid report, unless a limit is reached or it would fail.
func (s *Service) accept(ctx context.Context, x *exchange, report *Report, found desk.Found, res *httpapi.Response) (string, error) {
	released := found.Payment != nil && found.Payment.Status == desk.StatusReleased
	if !released { // a released payment may have been charged after all, whatever the wallet did since
		if err := s.unlimited(ctx, x, found.Desk); err != nil {
			return "limited", err
		}
	}
	if err := s.mayCheck(x); err != nil {
		return "limited", err
	}
	if err := s.affordable(ctx, x); err != nil {
		return "balance", s.refuse(res, err)
	}
	if released && x.used {
		s.drive(found.Payment)
		return "replay", s.await(ctx, x, res)
	}
	if !x.used { // otherwise there is nothing to submit
		if ending := x402.Ending(&x.signed.Authorization, s.deps.Now()); ending != nil {
			return "payment", s.demand(res, ending)
		}
	}
	if err := s.maySubmit(x); err != nil {
		return "limited", err
	}
	if err := s.reserve(ctx, x, report); err != nil {
		s.submitted(x)
		return "reservation", err
	}
	err := s.await(ctx, x, res)
	if err == nil {
		s.submitted(x)
	} else {
		s.undecided(x)
	}
	return "charged", err
}

// unlimited refuses a wallet that the desk would refuse, before the chain is read and the report is written.
func (s *Service) unlimited(ctx context.Context, x *exchange, d *desk.Desk) error {
	var holder *desk.Payment
	if d.Day != "" && d.Nonce != x.signed.Nonce {
		found, err := s.find(ctx, x.signed.From, d.Nonce)
		if err != nil {
			return s.unavailable()
		}
		holder = found.Payment
	}
	if !d.Free(x.signed.Nonce, desk.DayOf(s.deps.Now()), holder) {
		return s.limited()
	}
	return nil
}

func (s *Service) limited() error {
	now := s.deps.Now().UTC()
	return &httpapi.Error{
		Code:       codeReportLimit,
		Message:    fmt.Sprintf("one report is accepted per paying wallet per day (UTC), and none once %d payments of it failed on the chain", desk.MaxRefused),
		RetryAfter: now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now),
	}
}

// find retries: the desk may just be moving to another node, and a paying client does not retry by itself.
func (s *Service) find(ctx context.Context, payer common.Address, nonce common.Hash) (desk.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	for {
		found, err := s.deps.Desk.Find(ctx, payer, nonce)
		if err == nil || !sleep(ctx, s.cfg.Poll) {
			return found, err
		}
	}
}

// demand writes a 402 with the payment requirement and, if a payment was refused, the reason.
func (s *Service) demand(res *httpapi.Response, refusal *x402.Refusal) error {
	if refusal == nil {
		res.SetHeader(http.CanonicalHeaderKey(x402.HeaderRequired), s.price)
		return &httpapi.Error{Code: codePaymentRequired, Message: "pay the deposit first: see the " + x402.HeaderRequired + " header"}
	}
	if err := setHeader(res, x402.HeaderResponse, s.terms.Refused(refusal)); err != nil {
		return err
	}
	if err := setHeader(res, x402.HeaderRequired, s.terms.Required(s.resource(), string(refusal.Reason))); err != nil {
		return err
	}
	return &httpapi.Error{Code: codePaymentRequired, Message: "the payment was refused, and nothing was charged: " + refusal.Error()}
}

// refuse distinguishes an invalid payment from an unavailable chain.
func (s *Service) refuse(res *httpapi.Response, err error) error {
	if refusal, ok := errors.AsType[*x402.Refusal](err); ok {
		return s.demand(res, refusal)
	}
	if _, ok := errors.AsType[*httpapi.Error](err); ok {
		return err
	}
	s.metrics.chainErrors.Inc()
	return &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: "the payment chain cannot be read now; nothing was charged", RetryAfter: 5 * time.Second}
}

func (s *Service) resource() x402.Resource {
	return x402.Resource{
		URL: strings.TrimSuffix(s.cfg.PublicURL, "/") + "/reports", Description: "Refundable bug-report deposit", MimeType: "application/json",
	}
}

func setHeader(res *httpapi.Response, name string, v any) error {
	value, err := x402.EncodeHeader(v)
	if err != nil {
		return err
	}
	res.SetHeader(http.CanonicalHeaderKey(name), value)
	return nil
}

// authorize makes the checks of a payment that do not depend on the chain's state.
func (s *Service) authorize(ctx context.Context, x *exchange, header string) error {
	payment, err := x402.Decode(header)
	if err != nil {
		return err
	}
	signed, refusal := s.terms.Check(payment, s.deps.Now())
	if refusal == nil && !signed.Contract {
		x.signed = signed
		return nil
	}
	// A payment that would be refused today may have been accepted before, or charged: the same request gets its
	// answer.
	spelt, err := payment.Signed()
	if err != nil {
		return refusal
	}
	if x.signed, err = s.taken(ctx, spelt); x.signed != nil || err != nil {
		return err
	}
	if refusal == nil { // not signed by a key, perhaps by a contract wallet
		if err := s.mayAsk(x); err != nil {
			return err
		}
		x.signed = signed
		return s.token.CheckSignature(ctx, signed)
	}
	if x.signed, err = s.chargedLate(ctx, x, payment, refusal); x.signed != nil || err != nil {
		return err
	}
	return refusal
}

// taken is the desk's payment with this authorization and signature, whatever the requirement is today; nil: there is
// none.
func (s *Service) taken(ctx context.Context, signed *x402.Signed) (*x402.Signed, error) {
	found, err := s.deps.Desk.Find(ctx, signed.From, signed.Nonce)
	if err != nil {
		return nil, s.unavailable()
	}
	p := found.Payment
	if p == nil || p.Status == desk.StatusVoid || !bytes.Equal(p.Authorization.Signature, signed.Signature) {
		return nil, nil
	}
	return signedOf(&p.Authorization), nil
}

// chargedLate is an authorization that ended before the desk had it, and was charged by then; nil: it is not one.
func (s *Service) chargedLate(ctx context.Context, x *exchange, payment *x402.Payment, err error) (*x402.Signed, error) {
	refusal, ok := errors.AsType[*x402.Refusal](err)
	if !ok || refusal.Reason != x402.ReasonValidBefore {
		return nil, nil
	}
	signed, err := s.terms.CheckAnyTime(payment)
	if err != nil || s.deps.Now().Sub(time.Unix(int64(min(signed.ValidBefore, math.MaxInt64)), 0)) > lateLimit {
		return nil, refusal
	}
	if err := s.mayAsk(x); err != nil {
		return nil, err
	}
	if err := s.token.CheckSignature(ctx, signed); err != nil {
		return nil, err
	}
	o, err := s.recent(ctx, &signed.Authorization)
	if err != nil {
		s.metrics.chainErrors.Inc()
		return nil, s.pending() // it may have been charged
	}
	if o.State != x402.Paid {
		return nil, nil
	}
	return signed, nil
}

// parse decodes and validates the report.
func (s *Service) parse(ctx context.Context, req *httpapi.Request, body []byte) (*Report, error) {
	media, _, err := mime.ParseMediaType(req.HTTP.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return nil, &httpapi.Error{Code: httpapi.UnsupportedMediaType, Message: "the body must be application/json"}
	}
	report, err := decodeReport(body)
	if err != nil {
		return nil, err
	}
	head, err := s.deps.Head(ctx)
	if err != nil {
		return nil, &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: "the chain's head is not known now; nothing was charged", RetryAfter: 5 * time.Second}
	}
	return report, report.validate(head)
}

func conflict() error {
	return &httpapi.Error{Code: codeConflict, Message: "this payment was made for another report"}
}

func (s *Service) unavailable() error {
	return &httpapi.Error{Code: httpapi.UpstreamUnavailable, Message: "the support desk is unavailable now; send the same request again", RetryAfter: 2 * time.Second}
}

// affordable checks that the payment would succeed. It has succeeded if another sender submitted it.
func (s *Service) affordable(ctx context.Context, x *exchange) error {
	err := s.token.Simulate(ctx, x.signed, s.deps.Relayer)
	refusal, ok := errors.AsType[*x402.Refusal](err)
	if !ok || refusal.Reason != x402.ReasonNonceUsed {
		return err
	}
	o, err := s.recent(ctx, &x.signed.Authorization)
	if err != nil {
		s.metrics.chainErrors.Inc()
		return s.pending() // it may have been charged
	}
	switch o.State {
	case x402.Paid:
		x.used = true
		return nil
	case x402.Cancelled, x402.Elsewhere:
		return refusal
	case x402.Unused, x402.Expired: // this node is behind the one that has it as used
	}
	return s.pending()
}

// recent is the state of an authorization as of the last blocks.
func (s *Service) recent(ctx context.Context, a *x402.Authorization) (x402.AuthorizationState, error) {
	return s.token.AuthorizationState(ctx, a, s.scope(s.fromBlock()))
}
