package simulation

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/support"
	"github.com/lienstream/lienstream/serving/x402"
)

// Of reading tickets.
const (
	ticketWithin = 10 * time.Second // an answer
	ticketEvery  = 3 * time.Second  // at the most, while things break
	closed       = "401 UNAUTHORIZED"
	ticketOpen   = "200"
)

// shownTicket is a ticket as the service shows it.
type shownTicket struct {
	ID, Status, Outcome string
	Replies             []json.RawMessage
	Deposit             struct {
		Amount, Asset, Payer string
		Transaction          common.Hash
		Refund               struct {
			Status      string
			Transaction *common.Hash
		}
	}
	CreatedAt, UpdatedAt int64
	Report               any
}

// tokenOf is the token of a ticket.
func tokenOf(ticket string) string {
	return support.Keys{Token: []support.TokenKey{{Secret: reportKeys}}}.Ticket(ticket)
}

// ticketID is the ID of the ticket that there is; empty: there is none yet.
func (p *reporter) ticketID() string {
	p.tmu.Lock()
	defer p.tmu.Unlock()
	return p.ticket
}

// judgeCreated judges the answer to a report that is charged: it is the same ticket each time, and has what was paid.
func (p *reporter) judgeCreated(body []byte) error {
	var says struct {
		Ticket           shownTicket
		Token, StatusURL string
	}
	if err := json.Unmarshal(body, &says); err != nil {
		return err
	}
	if says.Token != tokenOf(says.Ticket.ID) || says.StatusURL != "http://support/t/"+says.Ticket.ID+"#"+says.Token {
		return errors.New("the token or the address of the page is another")
	}
	p.tmu.Lock()
	before := p.ticket
	p.ticket = says.Ticket.ID
	p.tmu.Unlock()
	if before != "" && before != says.Ticket.ID {
		p.found("another ticket for the same report", "%s after %s", says.Ticket.ID, before)
	}
	return p.judgeShown(&says.Ticket)
}

// judgeShown judges what is shown of a ticket, without the report: the payment of its wallet, and a state that nobody has changed.
func (p *reporter) judgeShown(t *shownTicket) error {
	terms, err := paymentTerms()
	if err != nil {
		return err
	}
	d := &t.Deposit
	switch is, since := now().Unix(), p.began.Unix(); {
	case t.ID != desk.TicketID(p.wallet, p.nonce):
		return errors.New("it is another payment's ticket")
	case t.Status != string(desk.TicketOpen), t.Outcome != string(desk.Pending), t.Replies == nil, len(t.Replies) > 0:
		return fmt.Errorf("its state is %s %s, with the replies %s", t.Status, t.Outcome, t.Replies)
	case d.Amount != terms.Amount, !strings.EqualFold(d.Asset, terms.Asset), !strings.EqualFold(d.Payer, p.wallet.Hex()), d.Transaction == common.Hash{}:
		return fmt.Errorf("its deposit is %+v", d)
	case d.Refund.Status != string(desk.RefundStatusNone), d.Refund.Transaction != nil:
		return fmt.Errorf("its refund is %+v", d.Refund)
	case t.CreatedAt < since-int64(skewWithin.Seconds()), t.UpdatedAt < t.CreatedAt-int64(skewWithin.Seconds()), t.UpdatedAt > is+int64(skewWithin.Seconds()):
		return fmt.Errorf("it is of %d, and changed at %d; it is %d", t.CreatedAt, t.UpdatedAt, is)
	}
	return nil
}

// judgeOpen judges a ticket that is shown to its token: it has the report that was sent.
func (p *reporter) judgeOpen(body []byte) (*shownTicket, error) {
	var t shownTicket
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, err
	}
	var sent any
	if err := json.Unmarshal([]byte(p.body), &sent); err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(t.Report, sent) {
		return nil, errors.New("the report is not what was sent")
	}
	return &t, p.judgeShown(&t)
}

// opens asks a node for a ticket with a token; empty: with none. page: as a person reads it.
func (p *reporter) opens(ctx context.Context, host, ticket, token string, page bool) (answer string, body []byte) {
	ctx, cancel := context.WithTimeout(ctx, ticketWithin)
	defer cancel()
	path := "/tickets/" + ticket
	if page {
		path = "/t/" + ticket + "/content"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+reportPort+path, http.NoBody)
	if err != nil {
		return "", nil
	}
	if token != "" {
		req.Header.Set("X-Service-Ticket-Token", token)
	}
	status, _, body := p.do(req)
	return answeredBy(status, body), body
}

// strangers are tokens that open no ticket of this reporter: none, one of another wallet, and parts of its own.
func (p *reporter) strangers() []string {
	other := p.newReporter("reporter0", "")
	if other.wallet == p.wallet {
		other = p.newReporter("reporter1", "")
	}
	own := tokenOf(p.ticketID())
	return []string{"", tokenOf(desk.TicketID(other.wallet, other.nonce)), own[:len(own)-1], "x" + own}
}

// watches reads the ticket through any node while things break: to another token it is never shown, and what is shown to its own is
// what was sent.
func (p *reporter) watches(ctx context.Context, servings []string, rng *rand.Rand) {
	for ctx.Err() == nil {
		host, page := servings[rng.IntN(len(servings))], rng.IntN(4) == 0
		id, tokens := p.ticketID(), p.strangers()
		if answer, body := p.opens(ctx, host, id, tokens[rng.IntN(len(tokens))], page); answer == ticketOpen {
			p.found("ticket is shown to another", "%s of %s: %s", id, host, body)
		}
		switch answer, body := p.opens(ctx, host, id, tokenOf(id), false); answer {
		case ticketOpen:
			if _, err := p.judgeOpen(body); err != nil {
				p.found("ticket is another", "%s of %s: %v: %s", id, host, err, body)
			}
		case closed:
			p.found("ticket is closed to its token", "%s of %s: %s", id, host, body)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.Int64N(int64(ticketEvery)))):
		}
	}
}

// judgeTicket judges that each node shows the ticket of a payment that is final, in full, to its own token, and to no other.
func (r *run) judgeTicket(ctx context.Context, p *reporter, servings []string) {
	id := p.ticketID()
	paid := p.payments.transfers(p.wallet, common.Address{})
	for _, host := range servings {
		answer, body := p.opens(ctx, host, id, tokenOf(id), false)
		if answer != ticketOpen {
			r.found("ticket cannot be read", "%s of %s: %s", id, host, body)
			continue
		}
		t, err := p.judgeOpen(body)
		if err == nil && !slices.ContainsFunc(paid, func(by transfer) bool { return by.transaction == t.Deposit.Transaction }) {
			err = fmt.Errorf("it was not paid by %s, but by %v", t.Deposit.Transaction, paid)
		}
		if err != nil {
			r.found("ticket is another", "%s of %s: %v: %s", id, host, err, body)
		}
		if answer, body := p.opens(ctx, host, id, tokenOf(id), true); answer != ticketOpen || !strings.Contains(string(body), "All of "+p.title) {
			r.found("ticket cannot be read", "the page of %s of %s: %s", id, host, body)
		}
		for i, token := range p.strangers() {
			for _, page := range []bool{false, true} {
				if answer, body := p.opens(ctx, host, id, token, page); answer != closed {
					r.found("ticket is shown to another", "%s of %s, token %d: %s", id, host, i, body)
				}
			}
		}
	}
}

// judgeDemand judges a 402: it says what to pay, and of a payment, that it was not taken.
func (p *reporter) judgeDemand(host string, header http.Header) {
	terms, err := paymentTerms()
	if err != nil {
		p.found("fault fails", "%v", err)
		return
	}
	var asks x402.Required
	var settled x402.Settlement
	for name, to := range map[string]any{x402.HeaderRequired: &asks, x402.HeaderResponse: &settled} {
		if name == x402.HeaderResponse && p.payment == "" {
			continue
		}
		text, err := base64.StdEncoding.DecodeString(header.Get(name))
		if err == nil {
			err = json.Unmarshal(text, to)
		}
		if err != nil {
			p.found("does not say what to pay", "%s to %s: %s: %v", host, p.wallet, name, err)
			return
		}
	}
	if !slices.Equal(asks.Accepts, []x402.Requirement{terms.Requirement}) || settled.Success {
		p.found("does not say what to pay", "%s to %s: %+v, %+v", host, p.wallet, asks, settled)
	}
}
