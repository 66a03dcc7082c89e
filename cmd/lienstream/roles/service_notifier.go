package roles

import (
	"context"
	"errors"

	"github.com/lienstream/lienstream/serving/notifier"
)

// notifierService takes subscriptions to alerts.
type notifierService struct {
	cfg notifier.Config
}

func newNotifierService() *notifierService { return &notifierService{notifier.DefaultConfig()} }

func (*notifierService) Name() string { return notifierName }

func (s *notifierService) URL() string { return local(s.cfg.HTTP.Listen) }

func (*notifierService) Configured(p *Process) bool { return p.notifies() && p.HasChain() }

func (s *notifierService) Flags(f *Flags) {
	bindListen(f, &s.cfg.HTTP, "notify-addr", "listen address of the notifier")
	bind(f, &s.cfg.Admits, "notify-domain-mails", "maximum confirmation mails per hour to addresses of one domain, for wallets without an open deal; 5 times as many in a day, and to all domains")
	bind(f, &s.cfg.Word, "notify-word", "first word of the messages that wallets sign")
}

// config is the configuration from all flags.
func (s *notifierService) config(p *Process) (notifier.Config, error) {
	c := s.cfg
	c.ChainID, c.Confirm = p.ChainID, p.notify.confirm
	var err error
	c.HTTP, err = p.HTTP(c.HTTP)
	return c, err
}

func (s *notifierService) Check(p *Process) error {
	c, err := s.config(p)
	errs := []error{err, c.Validate()}
	if !p.notifies() {
		errs = append(errs, errors.New("notify-keys-file: required: the notifier encrypts addresses with it"))
	}
	return errors.Join(append(errs, p.notify.check(p))...)
}

func (s *notifierService) Start(ctx context.Context, p *Process) error {
	c, err := s.config(p)
	if err != nil {
		return err
	}
	keys, err := p.NotifyKeys()
	if err != nil {
		return err
	}
	client, err := p.notifierClient(ctx)
	if err != nil {
		return err
	}
	chain, err := p.Chain(ctx)
	if err != nil {
		return err
	}
	service, err := notifier.New(c, client, chain, keys, p.Log, p.Reg)
	if err != nil {
		return err
	}
	p.Ready(s.Name(), service.Ready)
	p.Group.Go(func() error { return service.Run(ctx) })
	return nil
}
