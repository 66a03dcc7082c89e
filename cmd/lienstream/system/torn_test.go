package system

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/devchain"
)

const (
	tornPolls  = 10_000
	tornBlocks = 50 // spread over the polls
)

// TestNoTornRead polls lists that span all partitions while blocks of about 500 logs land. Two answers to
// one request as of one block must be the same bytes, and what is answered as of a block must be what the
// contracts say as of that block.
func TestNoTornRead(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{
		Seed: seed(t), TxsPerBlock: 220, TimePerBlock: time.Hour, Reorgs: true, ReorgEvery: 10, MaxReorgDepth: 3,
	})
	w.mine(t.Context(), t, 2)
	_, a := w.up(t, t.TempDir())
	settle(t, a, w.judge, time.Minute)

	seen := &firstAnswers{answers: map[string][sha256.Size]byte{}, blocks: map[string]bool{}, due: make(chan struct{}, 1)}
	g, ctx := errgroup.WithContext(t.Context())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g.Go(func() error {
		defer stop()
		for range tornBlocks {
			select {
			case <-seen.due:
			case <-ctx.Done():
				return nil
			}
			if _, err := w.scenario.Step(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	paths := []string{
		"/listings?limit=200", "/listings?limit=200&sort=cost", "/listings?limit=50&sort=cap&lane=STOCK",
		"/listings?limit=200&sort=expiry", "/deals?limit=200", "/deals?limit=200&state=FUNDED", "/assets",
	}
	for worker := range 4 {
		random := rand.New(rand.NewPCG(1, uint64(worker)))
		g.Go(func() error {
			for ctx.Err() == nil {
				if err := seen.poll(ctx, a, paths[random.IntN(len(paths))]); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d polls saw %d blocks, %d of them answered the same request twice or more; %d were refused",
		seen.polls.Load(), len(seen.blocks), seen.again.Load(), seen.refused.Load())
	if seen.again.Load() < tornPolls/2 {
		t.Fatal("too few answers could be compared")
	}
	stateEqualsChain(t.Context(), t, a, w.judge, time.Minute)
}

// firstAnswers remembers the first answer to each request as of each block.
type firstAnswers struct {
	polls, again, refused atomic.Int64
	due                   chan struct{} // a block is to be mined

	mu      sync.Mutex
	answers map[string][sha256.Size]byte
	blocks  map[string]bool
}

func (s *firstAnswers) poll(ctx context.Context, a *api, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return err
	}
	res, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode == http.StatusServiceUnavailable {
		s.refused.Add(1)
		return nil
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %d %s", path, res.StatusCode, body)
	}
	block := res.Header.Get("x-indexed-block-hash")
	if s.polls.Add(1)%(tornPolls/tornBlocks) == 0 {
		select {
		case s.due <- struct{}{}:
		default: // the chain is slower than the polls
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks[block] = true
	key, sum := path+" "+block, sha256.Sum256(body)
	if former, ok := s.answers[key]; !ok {
		s.answers[key] = sum
	} else if s.again.Add(1); former != sum {
		return fmt.Errorf("GET %s: two different answers as of block %s %s", path, res.Header.Get("x-indexed-block"), block)
	}
	return nil
}
