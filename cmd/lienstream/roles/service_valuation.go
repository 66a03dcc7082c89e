package roles

import (
	"context"
	"errors"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/valuation"
)

// valuationService serves values of collateral over HTTP.
type valuationService struct {
	cfg valuation.Config
}

func newValuationService() *valuationService { return &valuationService{valuation.DefaultConfig()} }

func (*valuationService) Name() string { return valuationName }

func (s *valuationService) URL() string { return local(s.cfg.HTTP.Listen) }

func (*valuationService) Configured(p *Process) bool { return p.HasChain() }

func (s *valuationService) Flags(f *Flags) {
	c, r := &s.cfg, &s.cfg.Reference
	bindListen(f, &c.HTTP, "valuation-addr", "listen address of the valuation service")
	bind(f, &c.MaxAge, "valuation-max-age", "maximum age of the block that the valuation service answers from")
	bind(f, &c.MaxGap, "valuation-max-gap", "gap between two blocks from which the chain counts as halted; after a halt there are no prices until --valuation-min-history has passed again; 0: no limit")
	bind(f, &r.Window, "valuation-window", "time window of a reference price, the time-weighted median tick")
	bind(f, &r.MinHistory, "valuation-min-history", "minimum price history of a pool")
	bind(f, &r.MaxDeviation, "valuation-max-deviation", "deviation from the reference price, in ticks, from which a pool's price is refused")
	bind(f, &r.MinDepth, "valuation-min-depth", "minimum depth of a pool: raw USDG that moves its price by 2 %")
	bindList(f, &c.Lockers, "valuation-lockers", "addresses whose positions count as locked, besides 0x…dEaD")
}

func (*valuationService) Defaults(p *Process) {
	if p.EmbeddedChain() {
		p.flags.fill("valuation-max-age", "0", embeddedClock)
		p.flags.fill("valuation-max-gap", "0", embeddedClock)
	}
}

// config is the configuration from all flags. The deployment is known once the chain is.
func (s *valuationService) config(p *Process) (valuation.Config, error) {
	c := s.cfg
	var err error
	c.HTTP, err = p.HTTP(c.HTTP)
	return c, err
}

func (s *valuationService) Check(p *Process) error {
	c, err := s.config(p)
	errs := []error{err, p.CheckChain()}
	if p.EmbeddedChain() {
		c.Deployment = contracts.Deployment{ChainID: p.ChainID}
	} else {
		c.Deployment, err = p.checkedDeployment()
		errs = append(errs, err)
	}
	return errors.Join(append(errs, c.Validate())...)
}

func (s *valuationService) Start(ctx context.Context, p *Process) error {
	c, err := s.config(p)
	if err != nil {
		return err
	}
	if c.Deployment, err = p.Deployment(); err != nil {
		return err
	}
	client, err := p.Chain(ctx)
	if err != nil {
		return err
	}
	reader, err := p.Market(ctx)
	if err != nil {
		return err
	}
	service, err := valuation.New(c, reader, client, p.Log, p.Reg)
	if err != nil {
		return err
	}
	p.Ready(s.Name(), service.Ready)
	p.Group.Go(func() error { return service.Run(ctx) })
	return nil
}
