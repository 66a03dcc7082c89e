package x402

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
)

// FacilitatorConfig names the service that settles.
type FacilitatorConfig struct {
	URL           string        // base URL of the service, without /settle
	Timeout       time.Duration // of a settlement, which waits for the chain
	Authorization string        // value of that header; empty: none. It is a secret
	Resource      Resource
	Dial          func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's own
}

// DefaultFacilitatorConfig lacks the service and the resource.
func DefaultFacilitatorConfig() FacilitatorConfig {
	return FacilitatorConfig{Timeout: 90 * time.Second}
}

// Validate returns all errors of the configuration, without the URL, which may have a key, and the header.
func (c *FacilitatorConfig) Validate() error {
	var faults []error
	switch base, err := url.Parse(c.URL); {
	case err != nil || base.Hostname() == "" || base.Scheme != "https" && base.Scheme != "http":
		faults = append(faults, errors.New("facilitator: URL: not an http or https URL"))
	case strings.ContainsAny(c.URL, "?#"): // /settle is appended
		faults = append(faults, errors.New("facilitator: URL: it has a query or a fragment; a key goes into the Authorization header"))
	}
	if c.Timeout <= 0 {
		faults = append(faults, fmt.Errorf("facilitator: Timeout: %s is not positive", c.Timeout))
	}
	if strings.ContainsFunc(c.Authorization, unicode.IsControl) {
		faults = append(faults, errors.New("facilitator: Authorization: has characters that an HTTP header cannot carry"))
	}
	return errors.Join(faults...)
}

const maxFacilitatorBytes = 64 << 10

// Facilitator settles through an external service, which is not trusted: neither its success nor its failure
// decides the state of a payment.
type Facilitator struct {
	cfg    FacilitatorConfig
	terms  *Terms
	client *http.Client
}

// NewFacilitator returns the client of a facilitator.
func NewFacilitator(cfg FacilitatorConfig, terms *Terms) (*Facilitator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Facilitator{cfg: cfg, terms: terms, client: &http.Client{
		Timeout: cfg.Timeout, Transport: &http.Transport{DialContext: cfg.Dial, DisableKeepAlives: true}, // settlements are rare, and no connection outlives its process
		// A redirect would send the payment and the secret elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

type settleRequest struct {
	X402Version         int         `json:"x402Version"`
	PaymentPayload      *Payment    `json:"paymentPayload"`
	PaymentRequirements Requirement `json:"paymentRequirements"`
}

// Settle asks the facilitator to submit s. We send no transaction, so none is recorded.
func (f *Facilitator) Settle(ctx context.Context, s *Signed, _ Record) error {
	payment := f.terms.Of(&s.Authorization).Payment(s, f.cfg.Resource) // a refund goes elsewhere; a price may have changed
	body, err := json.Marshal(settleRequest{X402Version: Version, PaymentPayload: payment, PaymentRequirements: payment.Accepted})
	if err != nil {
		return fmt.Errorf("encode settlement: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(f.cfg.URL, "/")+"/settle", bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if f.cfg.Authorization != "" {
		req.Header.Set("Authorization", f.cfg.Authorization)
	}
	res, err := f.client.Do(req)
	if err != nil {
		if shown, ok := errors.AsType[*url.Error](err); ok { // its text has the URL, which may contain a key
			err = shown.Err
		}
		return fmt.Errorf("%w: %w", ErrFacilitator, err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxFacilitatorBytes))
	if err != nil {
		return fmt.Errorf("%w: read the response: %w", ErrFacilitator, err)
	}
	return settled(res.StatusCode, text)
}

// settled is nil if a facilitator's response says that it has submitted the payment.
func settled(status int, text []byte) error {
	var answer Settlement
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%w: status %d without a settlement", ErrFacilitator, status)
	}
	if !answer.Success {
		return fmt.Errorf("%w: status %d, reason %q", ErrFacilitator, status, answer.ErrorReason.shown())
	}
	return nil
}

// Resume settles again: with a facilitator there are no attempts of ours.
func (f *Facilitator) Resume(ctx context.Context, s *Signed, _ Attempt, record Record) error {
	return f.Settle(ctx, s, record)
}
