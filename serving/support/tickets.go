package support

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Purposes of encrypted texts: a text of one purpose does not decrypt for another.
const (
	purposeReport = "report"
	purposeReply  = "reply"
)

type ticketJSON struct {
	ID        string            `json:"id"`
	Status    desk.TicketStatus `json:"status"`
	Outcome   desk.Verdict      `json:"outcome"`
	Replies   []replyJSON       `json:"replies"`
	Deposit   depositJSON       `json:"deposit"`
	CreatedAt int64             `json:"createdAt"`
	UpdatedAt int64             `json:"updatedAt"`
}

// openTicketJSON is a ticket as the holder of its token reads it.
type openTicketJSON struct {
	*ticketJSON
	Report *Report `json:"report"` // nil: no key opens it any more
}

type replyJSON struct {
	At   int64   `json:"at"`
	Body *string `json:"body"` // nil: no key opens it any more
}

type depositJSON struct {
	Amount      string      `json:"amount"`
	Asset       string      `json:"asset"`
	Payer       string      `json:"payer"`
	Transaction common.Hash `json:"transaction"`
	Refund      refundJSON  `json:"refund"`
}

type refundJSON struct {
	Status      desk.RefundStatus `json:"status"`
	Transaction *common.Hash      `json:"transaction"`
}

// ticket is a charged payment as its reporter sees it, without the report. If no key decrypts a reply, the ticket lacks
// its text and there is an error too: the decision and the state of the deposit are shown without the key.
func (k Keys) ticket(p *desk.Payment) (*ticketJSON, error) {
	of := p.Ticket
	t := &ticketJSON{
		ID: p.ID(), Status: of.Status, Outcome: of.Verdict, Replies: []replyJSON{}, CreatedAt: of.CreatedAt, UpdatedAt: of.UpdatedAt,
		Deposit: depositJSON{
			Amount: p.Authorization.Value.ToInt().String(), Asset: strings.ToLower(p.Asset.Hex()), Payer: strings.ToLower(p.Authorization.From.Hex()),
			Transaction: p.Proof.Transaction, Refund: refundJSON{Status: of.Refund},
		},
	}
	if of.RefundProof != nil {
		t.Deposit.Refund.Transaction = &of.RefundProof.Transaction
	} else if of.RefundAttempt != nil {
		t.Deposit.Refund.Transaction = &of.RefundAttempt.Hash
	}
	var errs []error
	for _, r := range of.Replies {
		reply := replyJSON{At: r.At}
		if text, err := k.Open(purposeReply, t.ID, r.Sealed); err == nil {
			reply.Body = new(string(text))
		} else {
			errs = append(errs, fmt.Errorf("reply of ticket %s: %w", t.ID, err))
		}
		t.Replies = append(t.Replies, reply)
	}
	return t, errors.Join(errs...)
}

// openTicket is ticket with the report.
func (k Keys) openTicket(p *desk.Payment, sealed []byte) (*openTicketJSON, error) {
	t, err := k.ticket(p)
	report, unopened := k.report(t.ID, sealed)
	return &openTicketJSON{t, report}, errors.Join(err, unopened)
}

// report opens the report of a ticket.
func (k Keys) report(id string, sealed []byte) (report *Report, err error) {
	text, err := k.Open(purposeReport, id, sealed)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil {
		return nil, fmt.Errorf("report of ticket %s: %w", id, err)
	}
	return report, nil
}

// unopened logs that a key is missing. The reporter sees the rest.
func (s *Service) unopened(err error) {
	if err != nil {
		s.log.Error("cannot decrypt part of a ticket", zap.Error(err))
	}
}

// admitted returns the ticket in the path if the token is valid. Otherwise the error does not tell whether it
// exists.
func (s *Service) admitted(ctx context.Context, req *httpapi.Request) (*openTicketJSON, error) {
	id := req.Path("id").Text()
	token := req.HTTP.Header.Get(s.ticketHeader())
	if !s.cfg.Keys.Opens(id, token, s.deps.Now()) {
		return nil, &httpapi.Error{Code: codeUnauthorized, Message: "the " + strings.ToLower(s.ticketHeader()) + " header is not valid for this ticket"}
	}
	payer, nonce, err := desk.ParseTicketID(id)
	if err != nil {
		return nil, &httpapi.Error{Code: httpapi.NotFound, Message: "there is no such ticket"}
	}
	found, err := s.deps.Desk.Find(ctx, payer, nonce)
	switch {
	case err != nil:
		return nil, s.unavailable()
	case found.Payment == nil || found.Payment.Status == desk.StatusVoid:
		return nil, &httpapi.Error{Code: httpapi.NotFound, Message: "there is no such ticket"}
	case !found.Payment.Charged(): // its block was reverted
		return nil, s.pending()
	}
	t, err := s.cfg.Keys.openTicket(found.Payment, found.Report)
	s.unopened(err)
	return t, nil
}

func (s *Service) getTicket(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	t, err := s.admitted(ctx, req)
	if err != nil {
		return err
	}
	return appendJSON(res, t)
}

// health returns the price of a report and where to pay; 503 while reports cannot be paid.
func (s *Service) health(ctx context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	if s.Ready(ctx) != nil {
		res.Status = 503
		res.RetryAfter(5 * time.Second)
	}
	number, _ := s.head.now()
	return appendJSON(res, map[string]any{
		"ok": res.Status == 200, "paymentBlock": number,
		"bounty": map[string]any{
			"price": price(s.terms.Value, s.cfg.Decimals), "currency": s.cfg.Symbol, "network": s.terms.Network, "amount": s.terms.Amount,
			"asset": strings.ToLower(s.terms.Token.Hex()), "payTo": strings.ToLower(s.terms.Payee.Hex()),
		},
	})
}

func appendJSON(res *httpapi.Response, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	res.Body = append(res.Body, text...)
	return nil
}

// price formats an amount in whole units of its asset, exactly: "15", "0.5".
func price(amount *big.Int, decimals int) string {
	text := amount.String()
	if len(text) <= decimals {
		text = strings.Repeat("0", decimals-len(text)+1) + text
	}
	whole, rest := text[:len(text)-decimals], strings.TrimRight(text[len(text)-decimals:], "0")
	if rest == "" {
		return whole
	}
	return whole + "." + rest
}
