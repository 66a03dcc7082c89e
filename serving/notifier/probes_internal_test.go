package notifier

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
)

// A network of IPv6 has any number of clients: they take no more than some of the probes that there are, nor of what waits, and give
// all back.
func TestProbesOfANetwork(t *testing.T) {
	p := newProbes()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		var taken []netip.Addr
		for i := range 8 * clientProbes {
			client := netip.MustParseAddr(fmt.Sprintf("2001:db8:7:%x::", i/clientProbes))
			if p.take(over, client) {
				taken = append(taken, client)
			}
		}
		if len(taken) != networkProbes {
			t.Fatalf("one network has %d probes", len(taken))
		}
		for _, other := range []string{"198.51.100.7", "2001:db8:8::"} {
			client := netip.MustParseAddr(other)
			if !p.take(over, client) {
				t.Fatalf("%s has no probe", other)
			}
			taken = append(taken, client)
		}
		for _, client := range taken {
			p.release(client)
		}
	}
	for i := range 8 * clientWaiting {
		client := netip.MustParseAddr(fmt.Sprintf("2001:db8:7:%x::", i/clientWaiting))
		if got := p.waiting.Take(client); got != (i < networkWaiting) {
			t.Fatalf("%d wait: %v", i, got)
		}
	}
}
