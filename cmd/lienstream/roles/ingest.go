package roles

import (
	"context"
	"errors"
	"slices"

	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// ingestRole writes what the chain says to the raw topic.
type ingestRole struct {
	cfg      ingest.Config
	rate     float64          // of each endpoint
	ingester *ingest.Ingester // once started
}

func newIngestRole() *ingestRole {
	r := &ingestRole{cfg: ingest.Config{}.WithDefaults()}
	r.cfg.RPC = r.cfg.RPC.WithDefaults()
	return r
}

func (*ingestRole) Name() string { return "ingest" }

func (*ingestRole) Help() string { return "chain → raw topic" }

func (*ingestRole) Memory(*Process) uint64 { return 48 << 20 }

func (r *ingestRole) Flags(f *Flags) {
	bind(f, &r.cfg.Standby, "ingest-standby", "wait while another ingester is active, and take over from it")
	bind(f, &r.cfg.Rewind, "rewind", "take back what was final, where the chain contradicts it; the processors need --rebuild then")
	bind(f, (*string)(&r.cfg.Finality), "finality", "who says that a block is final: tag (the nodes) or window (--reorg-window alone, where nodes know no finalized block)")
	bind(f, &r.cfg.ReorgWindow, "reorg-window", "blocks below the newest verified one that are never final")
	bind(f, &r.cfg.RPC.HeaderBatch, "rpc-batch", "calls of one request, at the most; fewer where an endpoint refuses them")
	bind(f, &r.cfg.RPC.MaxRange, "rpc-span", "blocks of one eth_getLogs, at the most; fewer where an endpoint refuses them")
	bind(f, &r.cfg.RPC.Parallel, "rpc-parallel", "requests under way at once, of each endpoint")
	bind(f, &r.rate, "rpc-rate", "calls a second of each endpoint, each of a batch counted; 0: no limit")
	bind(f, (*string)(&r.cfg.RPC.Proof), "rpc-proof", "which logs are proved by the receipts of their block: tip (what is not final), all, sparse (as tip, and empty blocks of history are believed: far fewer requests) or off")
	bind(f, &r.cfg.RPC.Confirm, "rpc-confirm", "answers that must agree on the logs of a range that is not proved, of different endpoints where there are several")
}

// config completes what flags say.
func (r *ingestRole) config(p *Process) (ingest.Config, error) {
	c, to := r.cfg, p.RPC()
	c.RPC.Endpoints, c.RPC.Timeout, c.RPC.ChainID, c.RPC.Dial = to.Endpoints, to.Timeout, to.ChainID, to.Dial
	c.RPC.Endpoints = slices.Clone(c.RPC.Endpoints)
	for i := range c.RPC.Endpoints {
		c.RPC.Endpoints[i].Rate = r.rate
	}
	c.Kafka, c.Partitions = p.Kafka(), p.partitions
	var err error
	c.Deployment, err = p.Deployment()
	return c, err
}

func (r *ingestRole) Check(p *Process) error {
	c, err := r.config(p)
	if err != nil {
		return errors.Join(p.checkServers(true), err)
	}
	return errors.Join(p.checkServers(false), c.Validate())
}

func (r *ingestRole) Start(ctx context.Context, p *Process) error {
	if err := kafka.CheckCatalogue(ctx, p.Kafka(), p.Catalogue()); err != nil {
		return err
	}
	return r.start(ctx, p)
}

// start is Start where the topics are known to be there.
func (r *ingestRole) start(ctx context.Context, p *Process) error {
	c, err := r.config(p)
	if err != nil {
		return err
	}
	if r.ingester, err = ingest.New(c, p.Reg, p.Log); err != nil {
		return err
	}
	p.Ready(r.Name(), func(context.Context) error { return r.ingester.Ready() })
	p.Group.Go(func() error { return r.ingester.Run(ctx) })
	return nil
}
