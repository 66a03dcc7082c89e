package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Valuation is a client of the valuation service.
type Valuation interface {
	// Deal returns the response body for a deal. Errors: ErrUnreliable, ErrNotValued; any other means
	// unavailable.
	Deal(ctx context.Context, id *big.Int) (json.RawMessage, error)
}

// Errors of a valuation.
var (
	ErrUnreliable = errors.New("the valuation service has no reliable price")
	ErrNotValued  = errors.New("the valuation service does not know the deal")
)

// valued is the needed part of a valuation.
type valued struct {
	DealID    string          `json:"dealId"`
	ValueUSDG json.RawMessage `json:"valueUSDG"`
	At        uint64          `json:"at"`

	value *big.Int // raw USDG
}

// DealValuation is a fresh reference value of a deal's collateral.
type DealValuation struct {
	DealID    string          `json:"dealId"`
	Lane      string          `json:"lane"`
	Cap       string          `json:"cap"`
	Valuation json.RawMessage `json:"valuation"` // as the valuation service answers it
	Notice    string          `json:"notice"`
	Evidence  Evidence        `json:"evidence"`
}

const valuationNotice = "A reference from pool prices, not an offer, and no recommendation."

func (a *Agent) dealValuation(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	d, head, err := a.readDeal(ctx, req)
	if err != nil {
		return err
	}
	if d.Lane != contracts.LaneStock {
		return refuse(httpapi.NotFound, "only stock collateral is valued here; this deal's lane is "+contracts.LaneNames[d.Lane])
	}
	body, _, err := a.valueOf(ctx, d.ID, head.Timestamp)
	if err != nil {
		return err
	}
	return write(res, DealValuation{
		DealID: decimal(d.ID), Lane: contracts.LaneNames[d.Lane], Cap: decimal(d.Cap), Valuation: body, Notice: valuationNotice, Evidence: a.evidence(head),
	})
}

// valueOf returns a deal's valuation if it is fresh at a time of the chain.
func (a *Agent) valueOf(ctx context.Context, id *big.Int, now uint64) (json.RawMessage, *valued, error) {
	if a.valuation == nil {
		return nil, nil, refuse(httpapi.UpstreamUnavailable, "there is no valuation service")
	}
	body, err := a.valuation.Deal(ctx, id)
	switch {
	case errors.Is(err, ErrUnreliable):
		return nil, nil, refuse(staleValuation, "the pools have no reliable price now")
	case errors.Is(err, ErrNotValued):
		return nil, nil, refuse(staleValuation, "the valuation service does not know the deal yet")
	case err != nil:
		return nil, nil, refuse(httpapi.UpstreamUnavailable, "the valuation service does not respond, ask again shortly")
	}
	v, ok := decodeValued(body, id)
	if !ok {
		return nil, nil, refuse(httpapi.UpstreamUnavailable, "the valuation service's response is malformed")
	}
	switch age, most := int64(now)-int64(v.At), int64(a.cfg.MaxValuation/time.Second); {
	case a.cfg.MaxValuation > 0 && age > most:
		return nil, nil, refuse(staleValuation, fmt.Sprintf("the valuation is %d s old", age))
	case a.cfg.MaxValuation > 0 && -age > most:
		return nil, nil, refuse(staleValuation, fmt.Sprintf("the valuation is of %d s after the chain's latest block", -age))
	}
	return body, v, nil
}

// decodeValued decodes a response of the valuation service about a deal.
func decodeValued(body []byte, id *big.Int) (*valued, bool) {
	v := new(valued)
	ok := json.Unmarshal(body, v) == nil && v.DealID == decimal(id) && readAmount(v.ValueUSDG, 256, &v.value) == nil && v.At != 0 && v.At <= math.MaxInt64
	return v, ok
}

// ValuationHTTP is an HTTP client of a valuation service.
type ValuationHTTP struct {
	base    string
	client  *http.Client
	timeout time.Duration
}

// NewValuationHTTP returns a client of the service at a URL.
func NewValuationHTTP(base string, client *http.Client, timeout time.Duration) *ValuationHTTP {
	return &ValuationHTTP{base: strings.TrimSuffix(base, "/"), client: client, timeout: timeout}
}

const maxValuationBytes = 256 << 10

// Deal implements Valuation.
func (v *ValuationHTTP) Deal(ctx context.Context, id *big.Int) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+"/deals/"+decimal(id)+"/valuation", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask the valuation service: %w", err)
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the valuation service: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxValuationBytes+1))
	if err != nil || len(body) > maxValuationBytes {
		return nil, fmt.Errorf("read the valuation service's response of %d bytes: %w", len(body), err)
	}
	if resp.StatusCode == http.StatusOK {
		return body, nil
	}
	var failure struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &failure) // without a code it is no valid response
	switch failure.Error.Code {
	case "PRICE_UNRELIABLE":
		return nil, ErrUnreliable
	case "DEAL_NOT_FOUND":
		return nil, ErrNotValued
	}
	return nil, fmt.Errorf("the valuation service responded with %d", resp.StatusCode)
}
