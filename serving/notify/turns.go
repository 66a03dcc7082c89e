package notify

import (
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// maxWrites bounds the writes of a wallet that wait at once. The state keeps the outcomes of a wallet's last 32
// commands, so with more on a few nodes one could be evicted before its writer has read it.
const maxWrites = 8

// turns counts the writes of each wallet that wait. Only signed requests count, so that nobody can take another's turn.
type turns struct {
	mu   sync.Mutex
	open map[common.Address]int
}

func newTurns() *turns { return &turns{open: map[common.Address]int{}} }

// begin is an error while too many writes of the wallet wait. Otherwise it must be followed by end.
func (t *turns) begin(wallet common.Address) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[wallet] >= maxWrites {
		return &httpapi.Error{
			Code: httpapi.RateLimited, Message: fmt.Sprintf("at most %d changes of a wallet at once", maxWrites), RetryAfter: time.Second,
		}
	}
	t.open[wallet]++
	return nil
}

func (t *turns) end(wallet common.Address) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[wallet]--; t.open[wallet] == 0 {
		delete(t.open, wallet)
	}
}
