package support

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

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
	Report    *Report           `json:"report,omitempty"`
	Replies   []replyJSON       `json:"replies"`
	Deposit   depositJSON       `json:"deposit"`
	CreatedAt int64             `json:"createdAt"`
	UpdatedAt int64             `json:"updatedAt"`
}

type replyJSON struct {
	At   int64  `json:"at"`
	Body string `json:"body"`
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

// ticket is a charged payment as its reporter sees it; without the report if sealed is nil.
func (s *Service) ticket(p *desk.Payment, sealed []byte) (*ticketJSON, error) {
	k := p.Ticket
	t := &ticketJSON{
		ID: p.ID(), Status: k.Status, Outcome: k.Verdict, Replies: []replyJSON{}, CreatedAt: k.CreatedAt, UpdatedAt: k.UpdatedAt,
		Deposit: depositJSON{
			Amount: p.Authorization.Value.ToInt().String(), Asset: strings.ToLower(p.Asset.Hex()), Payer: strings.ToLower(p.Authorization.From.Hex()),
			Transaction: p.Proof.Transaction, Refund: refundJSON{Status: k.Refund},
		},
	}
	if k.RefundProof != nil {
		t.Deposit.Refund.Transaction = &k.RefundProof.Transaction
	} else if k.RefundAttempt != nil {
		t.Deposit.Refund.Transaction = &k.RefundAttempt.Hash
	}
	if sealed != nil {
		var err error
		if t.Report, err = s.cfg.Keys.report(t.ID, sealed); err != nil {
			return nil, err
		}
	}
	for _, r := range k.Replies {
		text, err := s.cfg.Keys.Open(purposeReply, t.ID, r.Sealed)
		if err != nil {
			return nil, fmt.Errorf("reply of ticket %s: %w", t.ID, err)
		}
		t.Replies = append(t.Replies, replyJSON{r.At, string(text)})
	}
	return t, nil
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

// admitted returns the ticket in the path if the token is valid. Otherwise the error does not tell whether it
// exists.
func (s *Service) admitted(ctx context.Context, req *httpapi.Request) (*ticketJSON, error) {
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
	return s.ticket(found.Payment, found.Report)
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
