package support

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/x402"
)

// reserve records the payment: from here on it is followed until it is final.
func (s *Service) reserve(ctx context.Context, x *exchange, report *Report) error {
	text, err := json.Marshal(report)
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	sealed, err := s.cfg.Keys.Seal(purposeReport, desk.TicketID(x.signed.From, x.signed.Nonce), text)
	if err != nil {
		return err
	}
	// A client that disconnects changes nothing: the command may be applied.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commandTimeout)
	defer cancel()
	outcome, found, err := s.deps.Desk.Do(ctx, x.signed.From, &desk.Command{
		Kind: desk.Reserve, Nonce: x.signed.Nonce, Reservation: &desk.Reservation{
			Authorization: authorizationOf(x.signed), Asset: s.terms.Token, BodyDigest: x.digest, FromBlock: s.fromBlock(), Report: sealed,
		},
	})
	if err != nil {
		return s.unavailable() // it may be reserved: then the reconciler continues, and a retried request finds it
	}
	switch outcome {
	case desk.Done:
		s.drive(found.Payment)
		return nil
	case desk.Exists:
		return nil
	case desk.Conflict:
		return conflict()
	case desk.Limited:
		return s.limited()
	case desk.Unknown, desk.Refused, desk.Malformed, desk.Stranger, desk.Stale:
	}
	return fmt.Errorf("reserve: %s", outcome)
}

// await waits until the payment is decided, by any process, and responds.
func (s *Service) await(ctx context.Context, x *exchange, res *httpapi.Response) error {
	deadline := time.NewTimer(s.cfg.Wait)
	defer deadline.Stop()
	key, waits := driveKey{x.signed.From, x.signed.Nonce}, false
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) { // another process may settle it
		moved := s.moved(key)
		found, err := s.deps.Desk.Find(ctx, key.payer, key.nonce)
		if err == nil && found.Payment != nil {
			switch p := found.Payment; {
			case p.BodyDigest != x.digest:
				return conflict()
			case p.Charged():
				s.chargedLater(key)
				return s.created(p, res)
			case p.Status == desk.StatusVoid, p.Status == desk.StatusReleased && !x.used:
				return s.demand(res, &x402.Refusal{Reason: x402.Reason(p.Reason), Detail: "it was not charged", Payer: x.signed.From})
			}
		}
		if !waits {
			if waits = s.waiting.Take(key); !waits {
				return s.pending()
			}
			defer s.waiting.Release(key)
		}
		select {
		case <-moved:
		case <-time.After(wait):
		case <-ctx.Done():
			return s.pending()
		case <-deadline.C:
			return s.pending()
		}
	}
}

func (s *Service) pending() error {
	return &httpapi.Error{
		Code: codePending, Message: "the payment is not decided yet: send the same request again, with the same payment", RetryAfter: 5 * time.Second,
	}
}

// created writes a 201 with the same bytes every time.
func (s *Service) created(p *desk.Payment, res *httpapi.Response) error {
	if err := setHeader(res, x402.HeaderResponse, s.terms.Settled(p.Authorization.From, p.Proof.Transaction)); err != nil {
		return err
	}
	ticket, err := s.cfg.Keys.ticket(p)
	s.unopened(err)
	base, token := strings.TrimSuffix(s.cfg.PublicURL, "/"), s.cfg.Keys.Ticket(p.ID())
	body, err := json.Marshal(struct {
		Ticket    *ticketJSON `json:"ticket"`
		Token     string      `json:"token"`
		StatusURL string      `json:"statusUrl"`
	}{ticket, token, base + "/t/" + p.ID() + "#" + token})
	if err != nil {
		return fmt.Errorf("encode ticket: %w", err)
	}
	res.Status, res.Body = http.StatusCreated, append(res.Body, body...)
	res.SetHeader("Location", base+"/tickets/"+p.ID())
	return nil
}
