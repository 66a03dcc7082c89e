package query_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/polltest"
)

// A node may tell how far it is and answer no read, as one whose disk hangs does. Who holds the same is asked.
func TestASlowOwnerIsNotWaitedFor(t *testing.T) {
	notWaitedFor(t, isRead, false)
}

// The standby may lack the owner's last block when it is asked, and is asked again.
func TestAStandbyThatLagsIsAskedAgain(t *testing.T) { notWaitedFor(t, isRead, true) }

func isRead(body []byte) bool { return !bytes.Contains(body, []byte("watermarks")) }

// A process that is frozen takes connections and requests as ever, and answers none. Reads turn to the
// standby as soon as its silence is noticed, those that wait for it too.
func TestAFrozenOwnerIsNotWaitedFor(t *testing.T) {
	notWaitedFor(t, func([]byte) bool { return true }, false)
}

// notWaitedFor reads while the owner leaves some requests, told by their body, without an answer, and the standby lags until
// it was asked.
func notWaitedFor(t *testing.T, left func(body []byte) bool, lags bool) {
	t.Helper()
	standby := serve(t, newNode(t, topics.RoleStandby, 5, span(partitions)...))
	owner := &holder{node: newNode(t, topics.RoleOwner, 5, span(partitions)...)}
	answers := serveMarket(t.Context(), owner.node)
	var frozen atomic.Bool
	thaw := make(chan struct{})
	owner.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost { // it upgrades no connections, as an older build
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if frozen.Load() && left(body) {
			select {
			case <-thaw:
			case <-r.Context().Done():
			}
			return
		}
		answers.ServeHTTP(w, r)
	}))
	t.Cleanup(owner.server.Close)
	t.Cleanup(func() { close(thaw) })
	for _, h := range []*holder{owner, standby} {
		h.node.land(t, partitions, block(1), listing(1))
	}
	last := block(1)
	if lags {
		last = block(2)
		owner.node.land(t, partitions, last)
		asked := standby.server.Config.Handler
		var once sync.Once
		standby.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || r.Method != http.MethodPost {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			asked.ServeHTTP(w, r)
			if frozen.Load() && isRead(body) {
				once.Do(func() { standby.node.land(t, partitions, last) })
			}
		})
	}
	topic := make(owners, 64)
	routing := query.DefaultConfig()
	routing.Partitions, routing.Instance, routing.Timeout, routing.Interval = partitions, "me", time.Minute, time.Millisecond
	routing.Owners = func() (query.Feed, error) { return topic, nil }
	r, err := query.NewClient(routing, contracts.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	owner.announce(t, topic, "owner")
	standby.announce(t, topic, "standby")
	polltest.Until(t, "all partitions are at the block", func() bool { w, err := r.Lowest(); return err == nil && w.At == last })

	frozen.Store(true)
	for range 20 {
		if d, err := r.DealWithReward(t.Context(), uint256.NewInt(1)); err != nil || d.At != last {
			t.Fatalf("with a standby at hand: %v, %v", d.At, err)
		}
	}
}
