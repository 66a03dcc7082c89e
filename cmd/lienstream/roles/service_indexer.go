package roles

import (
	"context"
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/serving/indexer"
)

// indexerService serves the market's state over HTTP.
type indexerService struct {
	cfg indexer.Config
}

func newIndexerService() *indexerService { return &indexerService{indexer.DefaultConfig()} }

func (*indexerService) Name() string { return indexerName }

func (s *indexerService) URL() string { return local(s.cfg.HTTP.Listen) }

func (*indexerService) Configured(*Process) bool { return true }

func (s *indexerService) Flags(f *Flags) {
	bindListen(f, &s.cfg.HTTP, "indexer-addr", "listen address of the indexer")
	bind(f, &s.cfg.MaxLagBlocks, "max-lag-blocks", "lag behind the head, in blocks, from which the indexer is unhealthy")
	bind(f, &s.cfg.MaxStreamAge, "stream-max-age", "maximum duration of a /stream; the client then reconnects, perhaps to another node")
	bind(f, &s.cfg.ExplorerURL, "explorer-url", "block explorer that the indexer's page links to, with /tx/ and /address/; default: none")
	bind(f, &s.cfg.AgentURL, "page-agent-url", "URL at which browsers reach the agent API, for previews of transactions on the indexer's page; default: the one in this process with the embedded chain, else none")
	bind(f, &s.cfg.ValuationURL, "page-valuation-url", "URL at which browsers reach the valuation service, for values on the indexer's page; default: the one in this process with the embedded chain, else none")
}

func (*indexerService) Defaults(p *Process) {
	if p.EmbeddedChain() {
		p.flags.fill("page-agent-url", p.Beside(agentName), "the service in this process")
		p.flags.fill("page-valuation-url", p.Beside(valuationName), "the service in this process")
	}
}

// config is the configuration from all flags.
func (s *indexerService) config(p *Process) (indexer.Config, error) {
	c := s.cfg
	if p.sink != nil {
		c.OutboxURL = local(p.ops) + "/outbox"
	}
	c.ChainID, c.MaxHeadAge, c.MaxBlockAge = p.ChainID, p.MaxHeadAge, p.MaxHeadAge
	var err error
	c.HTTP, err = p.HTTP(c.HTTP)
	return c, err
}

func (s *indexerService) Check(p *Process) error {
	c, err := s.config(p)
	return errors.Join(err, c.Validate())
}

func (s *indexerService) Start(ctx context.Context, p *Process) error {
	c, err := s.config(p)
	if err != nil {
		return err
	}
	reader, err := p.Market(ctx)
	if err != nil {
		return err
	}
	service, err := indexer.New(c, reader, p.Log, p.Reg)
	if err != nil {
		return err
	}
	p.Ready(s.Name(), service.Ready)
	p.Group.Go(func() error { return service.Run(ctx) })
	return nil
}

// Banner shows what to ask first.
func (s *indexerService) Banner() []string {
	var lines []string
	for _, path := range []string{"/health/indexer", "/listings?sort=cost&limit=2", "/deals/1"} {
		lines = append(lines, fmt.Sprintf("curl '%s%s'", s.URL(), path))
	}
	return lines
}
