package support

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
)

// Staff is the command line API for answering reports. The audit log names the member of staff.
type Staff struct {
	Desk *desk.Client
	Keys Keys
	Name string
	Key  *ecdsa.PrivateKey // of the acting staff member: signs commands

	Page string                                                    // base URL of ticket pages, for mails
	Mail func(ctx context.Context, to, subject, text string) error // nil: no mail is sent
}

const maxReply = 12_000 // bytes

var (
	errNoTicket = errors.New("there is no such ticket")
	errChanged  = errors.New("somebody else has just changed it: look at it, and decide anew")
)

// List prints all tickets, one per line, and the payments that may become one.
func (s Staff) List(ctx context.Context, out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TICKET\tCREATED\tPAYMENT\tSTATUS\tOUTCOME\tREFUND\tPAYER")
	for partition := range s.Desk.Partitions() {
		var after []byte
		for {
			found, next, err := s.Desk.List(ctx, partition, false, after, sweepLimit)
			if err != nil {
				return err
			}
			for _, p := range found {
				created, k := p.ReservedAt, &desk.Ticket{Status: "-", Verdict: "-", Refund: "-"}
				switch {
				case p.Charged():
					created, k = p.Ticket.CreatedAt, p.Ticket
				case p.Status == desk.StatusVoid:
					continue
				}
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.ID(), time.Unix(created, 0).UTC().Format(time.RFC3339),
					p.Status, k.Status, k.Verdict, k.Refund, p.Authorization.From.Hex())
			}
			if after = next; next == nil {
				break
			}
		}
	}
	return table.Flush()
}

// Show prints a ticket as its reporter sees it, and the reporter's contact. A text that no key decrypts is null, and an
// error.
func (s Staff) Show(ctx context.Context, id string, out io.Writer) error {
	found, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	t, unopened := s.Keys.openTicket(found.Payment, found.Report)
	text, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return fmt.Errorf("encode ticket: %w", err)
	}
	_, err = fmt.Fprintln(out, string(text))
	return errors.Join(err, unopened)
}

// Reply replies to a ticket. If the ticket has the same reply by the same member of staff, only the mail is sent: an
// earlier attempt may have failed before it.
func (s Staff) Reply(ctx context.Context, id, text string) error {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxReply {
		return fmt.Errorf("a reply must have 1 to %d bytes, not %d", maxReply, len(text))
	}
	if err := s.reply(ctx, id, text); err != nil || s.Mail == nil {
		return err
	}
	if err := s.tell(ctx, id); err != nil {
		return fmt.Errorf("the reply was saved, but the reporter was not notified by email: %w", err)
	}
	return nil
}

// reply stores a reply that is not there yet.
func (s Staff) reply(ctx context.Context, id, text string) error {
	there, err := s.replied(ctx, id, text)
	if err != nil || there {
		return err
	}
	sealed, err := s.Keys.Seal(purposeReply, id, []byte(text))
	if err != nil {
		return err
	}
	if err = s.do(ctx, id, &desk.Command{Kind: desk.Reply, Sealed: sealed}); !errors.Is(err, errChanged) {
		return err
	}
	if there, lookErr := s.replied(ctx, id, text); lookErr != nil || !there {
		return errors.Join(err, lookErr)
	}
	return nil // this reply itself, sent by an earlier attempt
}

func (s Staff) replied(ctx context.Context, id, text string) (bool, error) {
	found, err := s.find(ctx, id)
	if err != nil {
		return false, err
	}
	for _, note := range found.Payment.Ticket.Replies {
		// A reply that no key decrypts is not this one, which is sealed with a present key.
		if before, err := s.Keys.Open(purposeReply, id, note.Sealed); err == nil && note.By == s.Name && string(before) == text {
			return true, nil
		}
	}
	return false, nil
}

// tell notifies the reporter by email that there is a reply, without its text or the token.
func (s Staff) tell(ctx context.Context, id string) error {
	found, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	report, err := s.Keys.report(id, found.Report)
	if err != nil {
		return err
	}
	return s.Mail(ctx, report.Contact.Email, "An answer to your report", fmt.Sprintf(
		"There is an answer to your report %q.\n\nOpen the statusUrl that you were given when you sent it, or read the ticket with its token:\n\n%s\n", report.Title, s.Page+id))
}

// Decide decides a ticket. The deposit is refundable if the report is accepted, or rejected and valid.
func (s Staff) Decide(ctx context.Context, id string, verdict desk.Verdict, valid bool) error {
	return s.do(ctx, id, &desk.Command{Kind: desk.Decide, Verdict: verdict, Valid: valid})
}

// Receipts reads receipts, to verify a refund; ethclient.Client is one.
type Receipts interface {
	x402.LogReader
	TransactionReceipt(ctx context.Context, hash common.Hash) (*types.Receipt, error)
	BlockNumber(ctx context.Context) (uint64, error)
}

// ByHand records that the member of staff will send the refund by hand. From then on the float sends none, and
// transfers that are on the chain already do not count.
func (s Staff) ByHand(ctx context.Context, id string, chain Receipts) error {
	head, err := chain.BlockNumber(ctx)
	if err != nil {
		return fmt.Errorf("read the payment chain's head: %w", err)
	}
	return s.do(ctx, id, &desk.Command{Kind: desk.RefundByHand, Head: head})
}

// NotSent records that a refund by hand was not sent, and will not be.
func (s Staff) NotSent(ctx context.Context, id string) error {
	return s.do(ctx, id, &desk.Command{Kind: desk.RefundNotSent})
}

// Refunded records that a transaction has refunded a deposit by hand, after checking its log and confirmations. A
// transaction refunds one deposit.
func (s Staff) Refunded(ctx context.Context, id string, chain Receipts, transaction common.Hash, confirmations uint64) error {
	found, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	p := found.Payment
	if refund := p.Ticket.Refund; refund != desk.RefundStatusSent || p.Ticket.ByHand == "" {
		return fmt.Errorf("the refund of ticket %s is %s, and nobody sends it by hand: refund %s by-hand says so, before it is sent; what was sent before that is recorded by refund --tx", id, refund, id)
	}
	return s.record(ctx, p, chain, transaction, confirmations, max(p.Proof.Block, p.Ticket.ByHandFrom))
}

// RefundedBefore is Refunded for a transaction that was sent before ByHand. The member of staff vouches that this
// transfer to the payer since the payment is the refund.
func (s Staff) RefundedBefore(ctx context.Context, id string, chain Receipts, transaction common.Hash, confirmations uint64) error {
	found, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	p := found.Payment
	switch k := p.Ticket; {
	case p.Status != desk.StatusFinal:
		return fmt.Errorf("the payment of ticket %s is not final yet", id)
	case k.Refund == desk.RefundStatusOwed, k.Refund == desk.RefundStatusFailed, k.Refund == desk.RefundStatusSent && k.ByHand != "":
		return s.record(ctx, p, chain, transaction, confirmations, p.Proof.Block)
	case k.Refund == desk.RefundStatusSent:
		return fmt.Errorf("the refund of ticket %s was signed by the float, and may be on its way", id)
	default:
		return fmt.Errorf("the refund of ticket %s is %s: nothing is owed", id, k.Refund)
	}
}

// record verifies the transaction's log: it is a transfer of the deposit to the payer, in a later block.
func (s Staff) record(ctx context.Context, p *desk.Payment, chain Receipts, transaction common.Hash, confirmations, after uint64) error {
	receipt, err := chain.TransactionReceipt(ctx, transaction)
	if err != nil {
		return fmt.Errorf("read the receipt of %s: %w", transaction, err)
	}
	head, err := chain.BlockNumber(ctx)
	if err != nil {
		return fmt.Errorf("read the payment chain's head: %w", err)
	}
	transfer := returns(receipt.Logs, p)
	if receipt.BlockNumber.Uint64() <= after || receipt.Status != types.ReceiptStatusSuccessful || transfer == nil {
		return fmt.Errorf("transaction %s does not refund ticket %s", transaction, p.ID())
	}
	if head+1 < receipt.BlockNumber.Uint64()+confirmations {
		return fmt.Errorf("transaction %s has fewer than %d confirmations", transaction, confirmations)
	}
	if err := x402.InChain(ctx, chain, transfer); err != nil {
		return err
	}
	if err := s.unused(ctx, p, receipt); err != nil {
		return err
	}
	return s.do(ctx, p.ID(), &desk.Command{Kind: desk.RefundConfirmed, Proof: &desk.Proof{
		Transaction: transaction, Block: receipt.BlockNumber.Uint64(), BlockHash: receipt.BlockHash, Final: true,
	}})
}

// returns is the transfer that returns a deposit; nil: there is none.
func returns(logs []*types.Log, p *desk.Payment) *types.Log {
	for _, l := range logs {
		if l.Address == p.Asset && len(l.Topics) == 3 && l.Topics[0] == x402.TopicTransfer &&
			l.Topics[2] == common.BytesToHash(p.Authorization.From[:]) && l.Topics[1] != l.Topics[2] && new(big.Int).SetBytes(l.Data).Cmp(p.Authorization.Value.ToInt()) == 0 {
			return l
		}
	}
	return nil
}

// unused searches the payer's other tickets, which are in one partition: the transaction must have refunded none of
// them, nor carry the float's refund of one. The desk decides between two that are recorded at once.
func (s Staff) unused(ctx context.Context, of *desk.Payment, receipt *types.Receipt) error {
	payer := of.Authorization.From
	after := desk.BeforeWallet(payer)
	for {
		found, next, err := s.Desk.List(ctx, s.Desk.Partition(payer), false, after, sweepLimit)
		if err != nil {
			return err
		}
		for _, p := range found {
			if p.Authorization.From != payer {
				return nil
			}
			recorded := p.Ticket != nil && p.Ticket.RefundProof != nil && p.Ticket.RefundProof.Transaction == receipt.TxHash
			if recorded || p.ID() != of.ID() && usesNonce(receipt.Logs, p.Asset, desk.RefundNonce(payer, p.Authorization.Nonce)) {
				return fmt.Errorf("transaction %s refunds ticket %s", receipt.TxHash, p.ID())
			}
		}
		if next == nil || bytes.Compare(next[:common.AddressLength], payer[:]) > 0 {
			return nil
		}
		after = next
	}
}

func usesNonce(logs []*types.Log, asset common.Address, nonce common.Hash) bool {
	return slices.ContainsFunc(logs, func(l *types.Log) bool {
		return l.Address == asset && len(l.Topics) == 3 && l.Topics[0] == x402.TopicUsed && l.Topics[2] == nonce
	})
}

func (s Staff) find(ctx context.Context, id string) (desk.Found, error) {
	payer, nonce, err := desk.ParseTicketID(id)
	if err != nil {
		return desk.Found{}, err
	}
	found, err := s.Desk.Find(ctx, payer, nonce)
	if err == nil && (found.Payment == nil || !found.Payment.Charged()) {
		err = errNoTicket
	}
	return found, err
}

func (s Staff) do(ctx context.Context, id string, cmd *desk.Command) error {
	found, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	p := found.Payment
	cmd.Nonce, cmd.Reserved, cmd.Seq = p.Authorization.Nonce, p.Reserved, p.Ticket.Seq+1
	outcome, err := s.command(ctx, p.Authorization.From, cmd)
	switch {
	case err != nil:
		return err
	case outcome == desk.Stale:
		return fmt.Errorf("ticket %s: %w", id, errChanged)
	case outcome == desk.Unknown:
		return errNoTicket
	case outcome == desk.Conflict:
		return fmt.Errorf("transaction %s refunds another ticket of this wallet", cmd.Proof.Transaction)
	case outcome != desk.Done:
		return fmt.Errorf("%s of ticket %s: %s", cmd.Kind, id, outcome)
	}
	return nil
}

// command signs and sends a command.
func (s Staff) command(ctx context.Context, wallet common.Address, cmd *desk.Command) (desk.Outcome, error) {
	if s.Key == nil {
		return "", errors.New("as-key-file: required to sign changes")
	}
	if err := cmd.Sign(wallet, s.Name, s.Key); err != nil {
		return "", err
	}
	outcome, _, err := s.Desk.Do(ctx, wallet, cmd)
	if outcome == desk.Stranger {
		return "", fmt.Errorf("key %s is not a key of %q in the processors' --support-staff-file", crypto.PubkeyToAddress(s.Key.PublicKey), s.Name)
	}
	return outcome, err
}
