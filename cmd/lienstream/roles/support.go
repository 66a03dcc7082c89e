package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/peterbourgon/ff/v4"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/support"
)

// supportCommand is `lienstream support list|show|reply|decide|refund`.
func (g *program) supportCommand(env Environment, f *Flags) *ff.Command {
	command := &ff.Command{Name: "support", Usage: "lienstream support list|show|reply|decide|refund [flags]", ShortHelp: "list, answer and refund bug reports", Exec: unknown}
	own := ff.NewFlagSet("support").SetParent(f.set)
	who := &staffMember{}
	own.StringVar(&who.name, 0, "as", os.Getenv("USER"), "name of the acting staff member, for the audit log")
	own.StringVar(&who.keyFile, 0, "as-key-file", "", "file with the staff member's private key, 32 bytes in hex; it signs every change")
	add := func(verb, takes, help string, least, most int, exec func(ctx context.Context, s *supportService, p *Process, staff support.Staff, args []string) error) *ff.FlagSet {
		usage := strings.TrimSpace("lienstream support " + verb + " " + takes)
		flags := ff.NewFlagSet(verb).SetParent(own)
		command.Subcommands = append(command.Subcommands, &ff.Command{
			Name: verb, Usage: usage, ShortHelp: help, Flags: flags,
			Exec: func(ctx context.Context, given []string) error {
				if len(given) < least || len(given) > most {
					return fmt.Errorf("usage: %s", usage)
				}
				return g.attend(ctx, env, who, func(ctx context.Context, s *supportService, p *Process, staff support.Staff) error {
					return exec(ctx, s, p, staff, given)
				})
			},
		})
		return flags
	}
	add("list", "", "list all tickets and undecided payments, one per line", 0, 0, func(ctx context.Context, _ *supportService, p *Process, staff support.Staff, _ []string) error {
		return staff.List(ctx, p.Stdout)
	})
	add("show", "<ticket>", "show a ticket and its report", 1, 1, func(ctx context.Context, _ *supportService, p *Process, staff support.Staff, args []string) error {
		return staff.Show(ctx, args[0], p.Stdout)
	})
	add("reply", "<ticket> <file>", "reply to a ticket with a Markdown file", 2, 2, func(ctx context.Context, _ *supportService, p *Process, staff support.Staff, args []string) error {
		text, err := p.readFile(args[1])
		if err != nil {
			return err
		}
		return staff.Reply(ctx, args[0], string(text))
	})
	add("decide", "<ticket> accepted|duplicate|rejected|rejected-valid", "decide a ticket; the deposit is refundable if accepted or rejected-valid", 2, 2,
		func(ctx context.Context, _ *supportService, _ *Process, staff support.Staff, args []string) error {
			verdict, valid, err := parseVerdict(args[1])
			if err != nil {
				return err
			}
			return staff.Decide(ctx, args[0], verdict, valid)
		})
	var before string
	refund := add("refund", "[--tx <transaction>] <ticket> [by-hand|not-sent|<transaction>]",
		"refund a deposit from the float; or take it on to send it by hand, give that up, or record and verify the transaction that sent it", 1, 2,
		func(ctx context.Context, s *supportService, p *Process, staff support.Staff, args []string) error {
			return s.refund(ctx, p, staff, before, args)
		})
	refund.StringVar(&before, 0, "tx", "", "hash of a transaction that has sent the refund already, before anybody took it on; it is verified by its log and recorded")
	return command
}

// parseVerdict is a verdict, and whether a rejected report is valid all the same.
func parseVerdict(text string) (verdict desk.Verdict, valid bool, err error) {
	switch text = strings.ToLower(text); text {
	case "accepted", "duplicate", "rejected":
		return desk.Verdict(strings.ToUpper(text)), false, nil
	case "rejected-valid":
		return desk.Rejected, true, nil
	}
	return "", false, fmt.Errorf("verdict: %.40q is not accepted, duplicate, rejected or rejected-valid", text)
}

// refund sends a refund, or records what has: after it was taken on by hand, or, where it is given apart, before.
func (s *supportService) refund(ctx context.Context, p *Process, staff support.Staff, before string, args []string) error {
	id, how := args[0], ""
	if len(args) == 2 {
		how = args[1]
	}
	if before != "" && how != "" {
		return fmt.Errorf("tx: unexpected argument %q after the ticket", how)
	}
	if how == "not-sent" {
		return staff.NotSent(ctx, id)
	}
	if err := support.CheckConfirmations(s.cfg.Confirmations); err != nil {
		return err
	}
	chain, err := s.dial(ctx, p)
	if err != nil {
		return err
	}
	switch {
	case before != "":
		hash, err := transactionHash(before)
		if err != nil {
			return fmt.Errorf("tx: %w", err)
		}
		return staff.RefundedBefore(ctx, id, chain, hash, s.cfg.Confirmations)
	case how == "":
		float, err := s.float(p, chain)
		if err != nil {
			return err
		}
		return staff.Refund(ctx, id, float)
	case how == "by-hand":
		return staff.ByHand(ctx, id, chain)
	}
	hash, err := transactionHash(how)
	if err != nil {
		return fmt.Errorf("neither by-hand nor not-sent nor a transaction: %w", err)
	}
	return staff.Refunded(ctx, id, chain, hash, s.cfg.Confirmations)
}

func transactionHash(text string) (common.Hash, error) {
	hash, err := hexutil.Decode(text)
	if err != nil || len(hash) != common.HashLength {
		return common.Hash{}, fmt.Errorf("%.80q is not a transaction hash, 32 bytes in hex", text)
	}
	return common.Hash(hash), nil
}

// staffMember is the staff member who runs the command.
type staffMember struct{ name, keyFile string }

// supportStaff lists the staff's keys; nil: any key is accepted.
func (p *Process) supportStaff() (desk.Roster, error) {
	if p.staffFile == "" {
		return nil, nil
	}
	text, err := p.readFile(p.staffFile)
	if err != nil {
		return nil, fmt.Errorf("support-staff-file: %w", err)
	}
	staff, err := desk.ParseRoster(string(text))
	if err != nil {
		return nil, fmt.Errorf("support-staff-file: %w", err)
	}
	return staff, nil
}

// staff returns the staff API for the acting member, with the service's keys. Letters may take until ctx is done.
func (s *supportService) staff(ctx context.Context, p *Process, who *staffMember, client *desk.Client, keys support.Keys) (support.Staff, error) {
	staff := support.Staff{Desk: client, Keys: keys, Name: who.name, Page: strings.TrimSuffix(s.cfg.PublicURL, "/") + "/t/"}
	var err error
	if who.keyFile != "" {
		if staff.Key, err = p.readKey("as-key-file", who.keyFile); err != nil {
			return support.Staff{}, err
		}
	}
	if p.notify.smtp != "" {
		if s.cfg.PublicURL == "" {
			return support.Staff{}, errors.New("support-public-url: required with smtp: letters to reporters link to it")
		}
		email, err := p.email(nil)
		if err != nil {
			return support.Staff{}, err
		}
		staff.Mail = func(_ context.Context, to, subject, text string) error { return email.Write(ctx, to, subject, text) }
	}
	return staff, nil
}

// deskPatience bounds the search for the holders of the support application.
const deskPatience = 15 * time.Second

// attend does one thing at the desk, with the keys that open what people wrote.
func (g *program) attend(ctx context.Context, env Environment, who *staffMember, do func(context.Context, *supportService, *Process, support.Staff) error) (err error) {
	if who.name == "" {
		return errors.New("--as: required: the audit log records who acted")
	}
	p := g.process(env)
	p.Reg = prometheus.NewRegistry()
	if err := p.checkServers(false); err != nil {
		return err
	}
	var s *supportService
	for _, r := range g.roles {
		if serving, ok := r.(*servingRole); ok {
			for _, service := range serving.services {
				if own, ok := service.(*supportService); ok {
					s = own
				}
			}
		}
	}
	var keys support.Keys // but for those of tokens, which staff need not have
	if keys.Text, err = s.textKeys(p); err != nil {
		return err
	}
	if err := keys.ValidateText(); err != nil {
		return err
	}
	letters := ctx // a mail server may take longer than all else to say that it has one
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	p.Group, ctx = errgroup.WithContext(ctx)
	defer func() {
		cancel()
		_ = p.Group.Wait() // it was told to stop
		err = errors.Join(err, p.close())
	}()
	client, err := p.supportDesk(ctx)
	if err != nil {
		return err
	}
	staff, err := s.staff(letters, p, who, client, keys)
	if err != nil {
		return err
	}
	for began := time.Now(); ; {
		err := staff.List(ctx, io.Discard) // until all holders are known
		if err == nil {
			break
		}
		if time.Since(began) > deskPatience || ctx.Err() != nil {
			return err
		}
	}
	return do(ctx, s, p, staff)
}
