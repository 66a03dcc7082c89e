// Package freeport finds ports for servers that tests and benchmarks start. Nothing that runs in production imports it.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// The range is below those from which systems take the ports of outgoing connections (Linux: 32768 on; others: 49152 on).
// A port of theirs may be taken by any connection before its server listens.
const (
	first = 12000
	last  = 32767
	tries = 1000
)

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// Find returns ports of loopback that were free a moment ago, and that it has not returned before.
func Find(n int) ([]int, error) {
	mu.Lock()
	defer mu.Unlock()
	var ports []int
	for range tries {
		if len(ports) == n {
			return ports, nil
		}
		port := first + rand.IntN(last-first+1)
		if given[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // closed at once
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		_ = l.Close()
		given[port] = true
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("found %d free ports of %d-%d, need %d", len(ports), first, last, n)
}

// Address is a free address of loopback.
func Address() (string, error) {
	ports, err := Find(1)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("127.0.0.1:%d", ports[0]), nil
}
