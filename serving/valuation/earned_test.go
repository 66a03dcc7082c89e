package valuation

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// TestAReaderMayLeave: of two requests for what a position has earned one reads, and the other one does not wait for it beyond its
// own time.
func TestAReaderMayLeave(t *testing.T) {
	w := newWorld(t)
	w.play(30)
	var at *askedPosition
	var liquidity uint256.Int
	for id := 0; at == nil && id < 200; id++ {
		answer, err := w.reader.Collateral(t.Context(), w.at, uint256.NewInt(uint64(id)))
		if err != nil || answer.Value.Position == nil {
			continue
		}
		if held := answer.Value.Position; w.state().byID(held.PoolID) != nil {
			at, liquidity = &askedPosition{tokenID: held.TokenID, pool: held.PoolID, lower: held.TickLower, upper: held.TickUpper}, held.Liquidity
		}
	}
	if at == nil {
		t.Fatal("no position is pledged")
	}
	node, asked, release := rpctest.NewLiar(t, w.node.HTTP(), 0), make(chan struct{}, 1), make(chan struct{})
	w.answersFrom([]string{node.URL})
	st := w.state()
	p := st.byID(at.pool)
	node.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		var data hexutil.Bytes
		if req.Method == "eth_call" && json.Unmarshal(resp.Result, &data) == nil && len(data) == 64+32*wordsOfFees {
			asked <- struct{}{}
			<-release
		}
		return false
	})
	fees := func(ctx context.Context) ([2]uint256.Int, error) {
		return w.service.chain.uncollected(ctx, st, p, &at.tokenID, &liquidity, at.lower, at.upper)
	}
	first := make(chan error)
	go func() {
		_, err := fees(t.Context())
		first <- err
	}()
	<-asked
	gone, leave := context.WithCancel(t.Context())
	second := make(chan error)
	go func() {
		_, err := fees(gone)
		second <- err
	}()
	leave()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("who has left: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := fees(t.Context()); err != nil {
		t.Error(err)
	}
}
