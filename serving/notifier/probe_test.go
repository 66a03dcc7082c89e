package notifier_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/processors/notifier"
	serving "github.com/lienstream/lienstream/serving/notifier"
)

// Whoever signs nothing chooses the code that the chain's nodes run to check that: it gets so much gas and no more, and a client runs
// few of them at once, whatever else it asks. A few more wait for these, and not for ever.
func TestProbesAreBounded(t *testing.T) {
	h := newHouse(t, "kfake")
	for name, refusedBefore := range map[string]int{"those that wait run": 12, "those that wait too long do not": 18} {
		t.Run(name, func(t *testing.T) { testProbes(t, h, refusedBefore) })
	}
}

// testProbes has the node answer once so many of 20 are refused.
func testProbes(t *testing.T, h *house, most429 int) {
	var running, most, named atomic.Int32
	hang := make(chan struct{})
	node := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var call struct {
			Method string
			Params []struct{ Gas hexutil.Uint64 }
		}
		if err := json.Unmarshal(body, &call); err == nil && call.Method == "eth_call" {
			if gas := call.Params[0].Gas; gas > 0 && gas < 10_000_000 {
				named.Add(1)
			}
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			select {
			case <-hang:
			case <-r.Context().Done():
				return
			}
		}
		res, err := http.Post(h.chain.HTTP(), "application/json", bytes.NewReader(body))
		if err != nil {
			return
		}
		defer func() { _ = res.Body.Close() }()
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(rw, res.Body)
	}))
	t.Cleanup(node.Close)
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	s, err := serving.New(serving.DefaultConfig(), h.client, h.over(node.URL), keys, h.log, h.metrics.New())
	check(t, err)
	var mu sync.Mutex
	answers := map[int]int{}
	var asking sync.WaitGroup
	refused := make(chan struct{})
	for i := range 20 {
		key, err := crypto.GenerateKey()
		check(t, err)
		wallet := strings.ToLower(addressOf(key).Hex())
		m := h.message(wallet, "email", "a@example.com", time.Now().Unix()-int64(i))
		req := httptest.NewRequest(http.MethodPost, "/notify", strings.NewReader(postBody(wallet, "email", "a@example.com", allPrefs, m, bytes.Repeat([]byte{7}, 65))))
		req.Header.Set("Content-Type", "application/json")
		req.RemoteAddr = fmt.Sprintf("198.51.100.7:%d", 1000+i)
		asking.Go(func() {
			res := httptest.NewRecorder()
			s.ServeHTTP(res, req)
			mu.Lock()
			defer mu.Unlock()
			if answers[res.Code]++; res.Code == http.StatusTooManyRequests && answers[res.Code] == most429 {
				close(refused)
			}
		})
	}
	select {
	case <-refused:
	case <-time.After(time.Minute):
		t.Errorf("answers: %v", answers)
	}
	close(hang)
	asking.Wait()
	if ran := int32(20 - most429); answers[http.StatusTooManyRequests] != most429 || answers[http.StatusUnauthorized] != int(ran) || most.Load() > 2 || named.Load() != ran {
		t.Errorf("answers %v; %d calls at once, %d with their gas", answers, most.Load(), named.Load())
	}
}
