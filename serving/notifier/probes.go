package notifier

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/lienstream/lienstream/serving/httpapi"
)

const (
	clientProbes   = 2  // concurrent probes of a client
	networkProbes  = 4  // of an IPv6 network, which may have any number of clients
	allProbes      = 16 // of all clients: the nodes serve other requests too
	clientWaiting  = 6  // waiting probes of a client
	networkWaiting = 12 // of an IPv6 network
	allWaiting     = 64 // of all clients
	probeWait      = 3 * time.Second
)

// probes are the running and waiting checks of contract wallets' signatures.
type probes struct {
	running slots
	waiting slots

	mu    sync.Mutex
	freed chan struct{} // closed when one has ended
}

func newProbes() *probes {
	return &probes{
		running: newSlots(clientProbes, networkProbes, allProbes), waiting: newSlots(clientWaiting, networkWaiting, allWaiting),
		freed: make(chan struct{}),
	}
}

// take waits for a while until a client's probe may run, unless too many wait. If it returns true, release must follow.
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

// slots are counted slots of clients and of their networks.
type slots struct {
	clients  *httpapi.Slots[netip.Addr]
	networks *httpapi.Slots[netip.Prefix]
}

func newSlots(client, network, all int) slots {
	return slots{httpapi.NewSlots[netip.Addr](client, all), httpapi.NewSlots[netip.Prefix](network, 0)}
}

// Take reports whether there was a slot for a client. If so, Release must follow.
func (s slots) Take(client netip.Addr) bool {
	network, wide := networkOf(client)
	if wide && !s.networks.Take(network) {
		return false
	}
	if s.clients.Take(client) {
		return true
	}
	if wide {
		s.networks.Release(network)
	}
	return false
}

// Release gives a slot of a client back.
func (s slots) Release(client netip.Addr) {
	if network, wide := networkOf(client); wide {
		s.networks.Release(network)
	}
	s.clients.Release(client)
}
