package support

import (
	"context"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
)

// head tells all who follow a payment that the payment chain has moved: one asks for all of them.
type head struct {
	mu     sync.Mutex
	hash   common.Hash
	number uint64
	moved  chan struct{}
}

func newHead() *head { return &head{moved: make(chan struct{})} }

func (h *head) set(number uint64, hash common.Hash) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hash != h.hash {
		h.number, h.hash = number, hash
		close(h.moved)
		h.moved = make(chan struct{})
	}
}

// now is the last block seen, and a channel that is closed with the next.
func (h *head) now() (uint64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.number, h.moved
}

// watch polls the payment chain's head.
func (s *Service) watch(ctx context.Context) {
	for {
		header, err := s.deps.Chain.HeaderByNumber(ctx, nil)
		switch {
		case err == nil:
			s.head.set(header.Number.Uint64(), header.Hash())
			s.metrics.head.Set(float64(header.Number.Uint64()))
		case ctx.Err() == nil:
			s.metrics.chainErrors.Inc()
			s.log.Warn("payment chain's head not read", zap.Error(err))
		}
		if !sleep(ctx, s.cfg.Poll) {
			return
		}
	}
}
