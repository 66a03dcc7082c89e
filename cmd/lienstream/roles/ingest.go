package roles

import (
	"context"
	"errors"
	"slices"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// ingestRole writes the chain's events to the raw topic.
type ingestRole struct {
	cfg      ingest.Config
	rate     float64          // maximum calls per second to each endpoint
	ingester *ingest.Ingester // once started
}

func newIngestRole() *ingestRole { return &ingestRole{cfg: ingest.DefaultConfig()} }

func (*ingestRole) Name() string { return "ingest" }

func (*ingestRole) Help() string { return "ingest the chain into the raw topic" }

func (*ingestRole) Memory(p *Process) uint64 { return max(ingestHeap, p.memory.Beyond(besideHeap)) }

func (*ingestRole) Least(*Process) memory.Budget { return ingestHeap + besideHeap }

func (r *ingestRole) Flags(f *Flags) {
	bind(f, &r.cfg.Standby, "ingest-standby", "stand by while another ingester is active, and take over when it stops")
	bind(f, &r.cfg.Rewind, "rewind", "revert finalized blocks that the chain no longer has; the processors then need --rebuild")
	bind(f, (*string)(&r.cfg.Finality), "finality", "how finality is decided: tag (the nodes' finalized block) or window (--reorg-window alone, for nodes without a finalized block)")
	bind(f, &r.cfg.ReorgWindow, "reorg-window", "number of newest blocks that are never treated as final")
	bind(f, &r.cfg.LedgerShares, "ledger-shares", "maximum holders of a newly followed token that one block carries; the others come with the next blocks")
	bind(f, &r.cfg.RPC.MaxBatch, "rpc-batch", "maximum calls in one batch request; lowered for an endpoint that refuses them")
	bind(f, &r.cfg.RPC.MaxRaw, "rpc-raw", "maximum transactions of a block that are fetched one by one in signed form, because the node's JSON does not match their hashes; in history at most 6 per block on average; in a block with more, hashes are not proved, unless another node contradicts them")
	bind(f, &r.cfg.RPC.MaxRange, "rpc-span", "maximum block range of one eth_getLogs; lowered for an endpoint that refuses it")
	bind(f, &r.cfg.RPC.Parallel, "rpc-parallel", "maximum concurrent requests to each endpoint")
	bind(f, &r.rate, "rpc-rate", "maximum calls per second to each endpoint, counting every call of a batch; 0: no limit")
	bind(f, &r.cfg.RPC.NoBloom, "rpc-no-bloom", "fetch the receipts of every block, for chains whose headers have no usable bloom filters")
	bind(f, (*string)(&r.cfg.RPC.Proof), "rpc-proof", "which logs are verified against their block's receipts: tip (blocks that are not final), all, sparse (as tip with far fewer requests: that a block of history has no logs is the claim of two endpoints, or of the only one) or off")
	bind(f, &r.cfg.RPC.Silence, "rpc-silence", "how long an endpoint may be silent, syncing or stuck before the others decide without it which blocks are ingested")
	bind(f, &r.cfg.RPC.Alone, "rpc-alone", "how long all other endpoints must have been silent, syncing or stuck before one alone makes blocks final; 0: never")
	bind(f, &r.cfg.RPC.Confirm, "rpc-confirm", "number of answers that must agree on the logs of an unverified range, from different nodes if there are several; 0: 2 with several nodes and --rpc-proof=tip or sparse, else 1")
}

// config is the configuration from all flags, but for the deployment.
func (r *ingestRole) config(p *Process) ingest.Config {
	c, to := r.cfg, p.RPC()
	c.RPC.Endpoints, c.RPC.Timeout, c.RPC.ChainID, c.RPC.Dial = to.Endpoints, to.Timeout, to.ChainID, to.Dial
	c.RPC.Endpoints = slices.Clone(c.RPC.Endpoints)
	for i := range c.RPC.Endpoints {
		c.RPC.Endpoints[i].Rate = r.rate
	}
	c.Kafka, c.Partitions = p.Kafka(), p.partitions
	return c
}

func (r *ingestRole) Check(p *Process) error {
	c := r.config(p)
	var err error
	c.Deployment, err = p.checkedDeployment()
	return errors.Join(p.checkServers(true), err, c.Validate())
}

func (r *ingestRole) Start(ctx context.Context, p *Process) error {
	if err := kafka.CheckCatalogue(ctx, p.Kafka(), p.Catalogue()); err != nil {
		return err
	}
	return r.start(ctx, p)
}

// start is Start after the topics were checked.
func (r *ingestRole) start(ctx context.Context, p *Process) error {
	c := r.config(p)
	var err error
	if c.Deployment, err = p.Deployment(); err != nil {
		return err
	}
	if r.ingester, err = ingest.New(c, p.Log, p.Reg); err != nil {
		return err
	}
	p.Ready(r.Name(), func(context.Context) error { return r.ingester.Ready() })
	p.Group.Go(func() error { return r.ingester.Run(ctx) })
	return nil
}
