package notifier

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/lienstream/lienstream/serving/httpapi"
)

const (
	clientProbes  = 2  // at once, of a client
	allProbes     = 16 // of all: the chain is there for others too
	clientWaiting = 6  // that wait for these, of a client
	allWaiting    = 64 // and of all
	probeWait     = 3 * time.Second
)

// probes are the checks of contract wallets' signatures that run, and those that wait for it.
type probes struct {
	running *httpapi.Slots[netip.Addr]
	waiting *httpapi.Slots[netip.Addr]

	mu    sync.Mutex
	freed chan struct{} // closed when one has ended
}

func newProbes() *probes {
	return &probes{
		running: httpapi.NewSlots[netip.Addr](clientProbes, allProbes), waiting: httpapi.NewSlots[netip.Addr](clientWaiting, allWaiting),
		freed: make(chan struct{}),
	}
}

// take waits until a client's probe may run, for a while, unless too many do. If it reports that, release must follow.
func (p *probes) take(ctx context.Context, client netip.Addr) bool {
	if p.running.Take(client) {
		return true
	}
	if !p.waiting.Take(client) {
		return false
	}
	defer p.waiting.Release(client)
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	for {
		p.mu.Lock()
		freed := p.freed
		p.mu.Unlock()
		if p.running.Take(client) {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

func (p *probes) release(client netip.Addr) {
	p.running.Release(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.freed)
	p.freed = make(chan struct{})
}
