package support

import (
	"context"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
)

// head notifies all followers of payments about new blocks: one poll serves all of them.
type head struct {
	mu     sync.Mutex
	hash   common.Hash
	number uint64
	moved  chan struct{}
	sooner chan struct{} // holds a token while a payment waits for the next block
}

func newHead() *head { return &head{moved: make(chan struct{}), sooner: make(chan struct{}, 1)} }

// hurry ends a long pause between two polls.
func (h *head) hurry() {
	select {
	case h.sooner <- struct{}{}:
	default:
	}
}

func (h *head) set(number uint64, hash common.Hash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hash != h.hash {
		h.number, h.hash = number, hash
		close(h.moved)
		h.moved = make(chan struct{})
	}
}

// now is the last block seen, and a channel that is closed at the next one.
func (h *head) now() (uint64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number, h.moved
}

// idlePolls is how many times longer the pause between two polls is while no payment waits.
const idlePolls = 20

// watch polls the payment chain's head.
func (s *Service) watch(ctx context.Context) {
	for {
		header, err := s.deps.Chain.HeaderByNumber(ctx, nil)
		switch {
		case err == nil:
			s.head.set(header.Number.Uint64(), header.Hash())
			s.metrics.head.Set(float64(header.Number.Uint64()))
			s.metrics.headRead.Set(float64(s.deps.Now().Unix()))
		case ctx.Err() == nil:
			s.metrics.chainErrors.Inc()
			s.log.Warn("cannot read the payment chain's head", zap.Error(err))
		}
		if !s.pause(ctx) {
			return
		}
	}
}

// pause waits between two polls: Poll while a payment is followed, longer otherwise. It returns false once ctx is done.
func (s *Service) pause(ctx context.Context) bool {
	if s.busy() {
		return sleep(ctx, s.cfg.Poll)
	}
	t := time.NewTimer(idlePolls * s.cfg.Poll)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.head.sooner:
	case <-ctx.Done():
		return false
	}
	return true
}
