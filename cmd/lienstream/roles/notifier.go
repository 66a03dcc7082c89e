package roles

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/mail"
	"slices"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/facts"
	"github.com/lienstream/lienstream/processors/notifier/resealer"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// notifySettings are used by both ends of the notifier: the service that takes subscriptions, and the
// processors that fire and send alerts.
type notifySettings struct {
	keysFile string
	keys     *notifier.Keys // nil until the file was read
	url      string         // of the service

	smtp             string // host:port
	smtpUser         string
	smtpPasswordFile string
	smtpPlain        bool
	from             string

	telegramTokenFile string
	telegramURL       string

	vapidFile   string
	pushContact string

	rates   sender.Rates
	app     string
	policy  string
	confirm bool
}

func newNotifySettings() notifySettings {
	return notifySettings{rates: sender.DefaultRates(), policy: string(facts.DefaultPolicy)}
}

func (s *notifySettings) flags(f *Flags) {
	bind(f, &s.keysFile, "notify-keys-file", "file with the keys that encrypt subscribers' addresses, one <id>:<64 hex digits> per line, the current one first, the same on all nodes; without it the notifier is off")
	bind(f, &s.url, "notify-public-url", "public URL of the notifier, for links in alerts")
	bind(f, &s.app, "app-url", "URL of the front end, for links in alerts")
	bind(f, &s.smtp, "smtp", "host:port of the SMTP server for email alerts; without it they stay in the outbox")
	bind(f, &s.smtpUser, "smtp-user", "SMTP user; without it the client does not authenticate")
	bind(f, &s.smtpPasswordFile, "smtp-password-file", "file with the SMTP password")
	bind(f, &s.smtpPlain, "smtp-plain", "send without TLS; only for an SMTP server on this machine")
	bind(f, &s.from, "smtp-from", "sender address of email alerts")
	bind(f, &s.rates.Email, "smtp-rate", "maximum emails per second")
	bind(f, &s.telegramTokenFile, "telegram-token-file", "file with the token of the Telegram bot that sends alerts; without it they stay in the outbox")
	bind(f, &s.telegramURL, "telegram-url", "URL of the Bot API, if not Telegram's own")
	bind(f, &s.rates.Telegram, "telegram-rate", "maximum Telegram messages per second")
	bind(f, &s.vapidFile, "vapid-file", "file with the VAPID key for Web Push, made by `lienstream notify keys`; without it push alerts stay in the outbox")
	bind(f, &s.pushContact, "push-contact", "email address or https URL that push services can use to contact the operator")
	bind(f, &s.rates.Push, "push-rate", "maximum Web Push messages per second")
	bind(f, &s.confirm, "notify-confirm", "send no alert to an email address or a Telegram chat before it is confirmed, by a link or by /start with a code; set it only when all processors run a build with this flag")
	bind(f, &s.policy, "notify-confirmation", "block tag whose timestamp decides what is due: latest (which may be reverted), safe or finalized")
}

// check returns all errors.
func (s *notifySettings) check(p *Process) error {
	_, err := p.NotifyKeys()
	errs := []error{err}
	if s.smtp != "" {
		if _, _, err := net.SplitHostPort(s.smtp); err != nil {
			errs = append(errs, fmt.Errorf("smtp: %w", err))
		}
	}
	if s.smtp != "" || s.from != "" {
		if _, err := mail.ParseAddress(s.from); err != nil {
			errs = append(errs, fmt.Errorf("smtp-from: %w", err))
		}
	}
	if !slices.Contains(facts.Policies, facts.Policy(s.policy)) {
		errs = append(errs, fmt.Errorf("notify-confirmation: %q is not one of %s", s.policy, facts.Policies))
	}
	if s.vapidFile != "" && s.pushContact == "" {
		errs = append(errs, errors.New("push-contact: required with --vapid-file"))
	}
	if s.smtp != "" && p.notifies() && s.url == "" && !p.EmbeddedChain() {
		errs = append(errs, errors.New("notify-public-url: required with --smtp, for the unsubscribe link that every mail must have"))
	}
	if s.confirm && s.url == "" && !p.EmbeddedChain() {
		errs = append(errs, errors.New("notify-public-url: required with --notify-confirm, for the links that confirm an address"))
	}
	for _, rate := range []struct {
		flag string
		per  float64
	}{{"smtp-rate", s.rates.Email}, {"telegram-rate", s.rates.Telegram}, {"push-rate", s.rates.Push}} {
		if rate.per <= 0 {
			errs = append(errs, fmt.Errorf("%s: %v is not positive", rate.flag, rate.per))
		}
	}
	if s.sends() && !p.notifies() {
		errs = append(errs, errors.New("notify-keys-file: required with --smtp, --telegram-token-file and --vapid-file"))
	}
	return errors.Join(errs...)
}

// sends reports whether a channel for alerts is configured.
func (s *notifySettings) sends() bool {
	return s.smtp != "" || s.telegramTokenFile != "" || s.vapidFile != ""
}

// notifies reports whether the notifier is on. With the embedded chain it uses temporary keys, since nothing
// outlives the run.
func (p *Process) notifies() bool { return p.notify.keysFile != "" || p.EmbeddedChain() }

// NotifyKeys are the keys that encrypt subscribers' addresses; nil: the notifier is off.
func (p *Process) NotifyKeys() (*notifier.Keys, error) {
	if p.notify.keys != nil || !p.notifies() {
		return p.notify.keys, nil
	}
	var text string
	if p.notify.keysFile == "" {
		var key [32]byte
		_, _ = rand.Read(key[:]) // it never fails
		text = "1:" + hex.EncodeToString(key[:])
	} else {
		file, err := p.readFile(p.notify.keysFile)
		if err != nil {
			return nil, fmt.Errorf("notify-keys-file: %w", err)
		}
		text = string(file)
	}
	keys, err := notifier.ParseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("notify-keys-file: %w", err)
	}
	p.notify.keys = keys
	return keys, nil
}

// notifierClient returns a client of the notifier application.
func (p *Process) notifierClient(ctx context.Context) (*notifier.Client, error) {
	router, err := p.Application(ctx, topics.AppNotifier)
	if err != nil {
		return nil, err
	}
	producer, err := p.notifyProducer()
	if err != nil {
		return nil, err
	}
	return notifier.NewClient(p.Catalogue(), producer, router), nil
}

func (p *Process) notifyProducer() (*kafka.Producer, error) {
	producer, err := kafka.NewProducer(p.Kafka(), topics.AppNotifier, kafka.ProducerOptions{})
	if err == nil {
		p.Closing(func() error { producer.Close(); return nil })
	}
	return producer, err
}

// startNotifier starts what belongs to the notifier: the router of chain facts to wallets, and the sender of
// alerts.
func startNotifier(ctx context.Context, r *processorsRole, p *Process, node *engine.Node) error {
	dep, err := p.Deployment()
	if err != nil {
		return err
	}
	cfg := beside(r.config(p, topics.AppFacts))
	cfg.HeadCommands = true
	source, err := engine.New(cfg, facts.New(contracts.NewDecoder(dep), p.partitions, facts.Policy(p.notify.policy)))
	if err != nil {
		return err
	}
	p.Ready("notifier facts", func(context.Context) error { return source.Ready(p.MaxHeadAge) })
	p.Group.Go(func() error { return source.Run(ctx) })
	keys, err := p.NotifyKeys()
	if err != nil {
		return err
	}
	producer, err := p.notifyProducer()
	if err != nil {
		return err
	}
	seals := resealer.New(p.Catalogue(), node, producer, keys, p.Log, p.Reg)
	p.Ready("notifier keys", func(context.Context) error { return seals.Ready() })
	p.Group.Go(func() error { return seals.Run(ctx) })
	channels, err := p.channels()
	if err != nil {
		return err
	}
	c := sender.DefaultConfig()
	c.Catalogue, c.Confirmation = p.Catalogue(), p.notify.policy
	send, err := sender.New(c, node, producer, keys, channels, p.Log, p.Reg)
	if err != nil {
		return err
	}
	p.Group.Go(func() error { return send.Run(ctx) })
	if line := channels[notifier.Telegram]; line != nil && p.notify.confirm && p.notify.url != "" {
		if telegram, ok := line.Channel.(*sender.Telegram); ok {
			p.Group.Go(func() error { return telegram.Listen(ctx, p.Log) })
		}
	}
	return nil
}
