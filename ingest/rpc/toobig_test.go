package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
)

// replied fails a request with a status, a body or both.
func replied(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func silent(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TestReceiptsTooBigUnsaid: the only node does not return the receipts of one of several blocks at once, and does not
// say why, like many gateways. The block is proved by raw receipts, or by single ones.
func TestReceiptsTooBigUnsaid(t *testing.T) {
	const transactions, blocks, big, most = 60, 6, 4, 110
	chain := rpctest.NewBusy(7, blocks, 1, transactions, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for name, fails := range map[string]http.HandlerFunc{
		"504":            replied(http.StatusGatewayTimeout, "Gateway Timeout"),
		"502":            replied(http.StatusBadGateway, ""),
		"internal error": replied(http.StatusOK, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error"}}`),
		"throttled":      replied(http.StatusOK, `{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"limit exceeded"}}`),
		"half an answer": replied(http.StatusOK, `{"jsonrpc":"2.0","id":1,"result":[{"block`),
		"HTML":           replied(http.StatusOK, `<html>Please wait</html>`),
		"for ever":       silent,
	} {
		for _, raw := range []bool{true, false} {
			inBubble(t, fmt.Sprint(name, ", raw ", raw), func(t *testing.T) {
				asked := map[string]int{}
				node := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if bytes.Contains(body, []byte("eth_getBlockReceipts")) && bytes.Contains(body, []byte(chain.Hash(big).Hex())) {
						asked["at once"]++
						fails(w, r)
						return
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					rpctest.Serve(w, r, func(m rpctest.Message) string {
						if asked[m.Method]++; m.Method == "debug_getRawReceipts" && !raw {
							return noMethod
						}
						return chain.Answer(m)
					})
				})
				c := piped(t, func(*Config) {}, node)
				headers, err := c.Headers(t.Context(), 1, blocks, common.Hash{})
				if err != nil {
					t.Fatal(err)
				}
				clear(asked)
				for began := time.Now(); ; { // a session asks again after a lie
					if got, err := c.Logs(t.Context(), headers); err == nil {
						for i := range got {
							if len(got[i].Logs) != 1 {
								t.Errorf("block %d has %d logs", headers[i].Number, len(got[i].Logs))
							}
						}
						break
					} else if time.Since(began) > 2*time.Minute {
						t.Fatalf("after %s: %v", time.Since(began), err)
					}
				}
				all := 0
				for _, n := range asked {
					all += n
				}
				if one := asked["eth_getTransactionReceipt"]; all > most || raw && one > 0 || !raw && one != transactions {
					t.Errorf("%v, at most %d calls in all", asked, most)
				} else {
					t.Logf("%v", asked)
				}
			})
		}
	}
}

// TestReceiptsOfOneThatIsDown: the only node answers nothing for a while, or nothing about a block but its list of
// transactions. It gets no requests for single receipts, or few, and the block comes in as soon as it returns them.
func TestReceiptsOfOneThatIsDown(t *testing.T) {
	const transactions, away = 60, 30 * time.Second
	chain := rpctest.NewBusy(7, 2, 1, transactions, types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}}})
	t.Cleanup(chain.Close)
	for _, test := range []struct {
		name      string
		light     bool // what is small comes
		each, all int  // calls, at most
	}{{"all", false, 0, 60}, {"receipts", true, 3 * transactions, 300}} {
		inBubble(t, test.name, func(t *testing.T) {
			asked := map[string]int{}
			var began time.Time
			node := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				var one rpctest.Message
				heavy := json.Unmarshal(body, &one) != nil || strings.Contains(one.Method, "Receipt")
				if time.Since(began) < away && (heavy || !test.light) {
					for _, method := range []string{"eth_getTransactionReceipt", "eth_getBlockReceipts", "eth_getBlockByHash", "eth_chainId"} {
						asked[method] += bytes.Count(body, []byte(method))
					}
					replied(http.StatusBadGateway, "")(w, r)
					return
				}
				rpctest.Serve(w, r, func(m rpctest.Message) string {
					asked[m.Method]++
					return chain.Answer(m)
				})
			})
			c := piped(t, func(*Config) {}, node)
			headers, err := c.Headers(t.Context(), 1, 1, common.Hash{})
			if err != nil {
				t.Fatal(err)
			}
			clear(asked)
			began = time.Now()
			for {
				if got, err := c.Logs(t.Context(), headers); err == nil && len(got[0].Logs) == 1 {
					break
				} else if time.Since(began) > 2*away {
					t.Fatalf("after %s: %v", time.Since(began), err)
				}
			}
			all := 0
			for _, n := range asked {
				all += n
			}
			took := time.Since(began)
			if each := asked["eth_getTransactionReceipt"]; each > test.each || all > test.all || took > away+2*maxRest {
				t.Errorf("%v after %s, at most %d receipts one by one, and %d calls in all", asked, took, test.each, test.all)
			} else {
				t.Logf("%v after %s", asked, took)
			}
		})
	}
}
