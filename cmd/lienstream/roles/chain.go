package roles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// chainRole runs go-ethereum in this process, with the market and actors who use it.
type chainRole struct {
	addr      string
	seed      uint64
	blockTime time.Duration
	reorgs    bool
}

// calmAfter is after how many blocks little happens on the embedded chain, so that weeks of it fit on a disk.
const calmAfter = 10_000

func newChainRole() *chainRole {
	return &chainRole{
		addr: net.JoinHostPort(devchain.DefaultHost, strconv.Itoa(devchain.DefaultPort)),
		seed: 1, blockTime: time.Second / devchain.DefaultRate,
	}
}

func (*chainRole) Name() string { return "chain" }

func (*chainRole) Help() string {
	return "run only the embedded chain; its deployment is written to --deployment"
}

func (*chainRole) Memory(p *Process) uint64 { return p.memory.Beyond(besideHeap) }

func (*chainRole) Least(*Process) memory.Budget { return ingestHeap + besideHeap }

func (r *chainRole) Flags(f *Flags) {
	bind(f, &r.addr, "chain-addr", "listen address of the embedded chain's JSON-RPC")
	bind(f, &r.seed, "seed", "seed of the embedded chain")
	bind(f, &r.blockTime, "block-time", "block time of the embedded chain")
	bind(f, &r.reorgs, "reorgs", "reorganise the embedded chain from time to time")
}

// endpoint splits addr into host and port.
func (r *chainRole) endpoint() (string, int, error) {
	host, port, err := net.SplitHostPort(r.addr)
	if err != nil {
		return "", 0, fmt.Errorf("chain-addr: %w", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("chain-addr: port %q: %w", port, err)
	}
	return host, int(number), nil
}

func (r *chainRole) Check(*Process) error {
	_, _, err := r.endpoint()
	if r.blockTime <= 0 {
		err = errors.Join(err, fmt.Errorf("block-time: %s is not positive", r.blockTime))
	}
	return err
}

func (r *chainRole) Start(ctx context.Context, p *Process) error {
	_, err := r.start(ctx, p, p.Servers.Deployment)
	return err
}

// start starts the chain, deploys the market, writes the deployment file, and starts the scenario. It returns
// the endpoints.
func (r *chainRole) start(ctx context.Context, p *Process, file string) ([]string, error) {
	host, port, err := r.endpoint()
	if err != nil {
		return nil, err
	}
	if err := p.FS.MkdirAll(p.DataDir, 0o750); err != nil {
		return nil, err
	}
	chain, err := devchain.New(devchain.Config{
		ChainID: p.ChainID, Host: host, Port: port, Seed: r.seed, Scratch: p.DataDir,
		Prune:    p.up,        // else whoever starts to follow it later asks about its first blocks
		Patience: time.Second, // a part of what a stop may take
	})
	if err != nil {
		return nil, err
	}
	p.Closing(chain.Close)
	market, err := devchain.Deploy(ctx, chain, devchain.MarketConfig{Seed: r.seed})
	if err != nil {
		return nil, err
	}
	if err := p.FS.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return nil, err
	}
	f, err := p.FS.Create(file, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(market.Deployment.Write(f), f.Close()); err != nil {
		return nil, err
	}
	scenario, err := devchain.NewScenario(market, devchain.ScenarioConfig{
		Seed: r.seed, Rate: float64(time.Second) / float64(r.blockTime), Reorgs: r.reorgs, Logger: p.Log, Registerer: p.Reg,
		CalmAfter: calmAfter,
	})
	if err != nil {
		return nil, err
	}
	p.Group.Go(func() error { return scenario.Run(ctx) })
	return []string{chain.WS(), chain.HTTP()}, nil
}
