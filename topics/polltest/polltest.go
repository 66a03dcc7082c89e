// Package polltest runs components in tests, and waits for what other goroutines and processes bring about, where there is no
// event to wait for. Nothing that runs in production imports it.
package polltest

import (
	"context"
	"errors"
	"testing"
	"time"
)

const (
	interval = 5 * time.Millisecond
	patience = time.Minute // of Until: far more than a loaded machine takes
)

var errNotYet = errors.New("it is not so")

// Until polls until ok, and fails after a minute.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	if poll(patience, func() error {
		if ok() {
			return nil
		}
		return errNotYet
	}) != nil {
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// Within polls until check returns nil, and fails with its last error.
func Within(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	if err := poll(limit, check); err != nil {
		t.Fatalf("not within %v: %v", limit, err)
	}
}

func poll(limit time.Duration, check func() error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for deadline := time.After(limit); ; {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}

// Run runs a component until the test ends, which fails if it returns an error.
func Run(t testing.TB, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
