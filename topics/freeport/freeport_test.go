package freeport

import (
	"fmt"
	"net"
	"testing"
)

// Ports that servers have, or that were given before, are not given.
func TestFind(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		ports, err := Find(50)
		if err != nil || len(ports) != 50 {
			t.Fatal(len(ports), err)
		}
		for _, p := range ports {
			if p < first || p > last || seen[p] {
				t.Fatalf("port %d was given before, or is not in %d-%d", p, first, last)
			}
			seen[p] = true
		}
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", first))
	if err != nil {
		t.Skip(err) // somebody else's
	}
	defer func() { _ = l.Close() }()
	for p := first + 1; p <= last; p++ {
		given[p] = true
	}
	if got, err := Find(1); err == nil {
		t.Errorf("port %d is in use, but was given", got)
	}
}
