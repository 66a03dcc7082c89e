package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// twofaced answers batches as one node, and single calls, among them votes, as another.
func twofaced(batches, single http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.HasPrefix(bytes.TrimSpace(body), []byte("[")) {
			batches.ServeHTTP(w, r)
		} else {
			single.ServeHTTP(w, r)
		}
	})
}

func later(node *rpctest.Sparse, t *testing.T, d time.Duration) http.Handler {
	return rpctest.NewLiar(t, node.URL, d)
}

// TestRangesOfAnotherChain: an endpoint votes with the others, and has headers of another chain in every batch. Ranges are
// of one chain, and once the vote is on what a range does not link to, it is counted; nobody else is.
func TestRangesOfAnotherChain(t *testing.T) {
	other, chain := chains(t, 1000, 1000)
	c := voters(t, func(*Config) {}, twofaced(other, chain), later(chain, t, 5*time.Millisecond), later(chain, t, 5*time.Millisecond))
	polltest.Within(t, time.Minute, func() error {
		headers, err := c.Headers(t.Context(), 11, 900, chain.Hash(900))
		if err != nil {
			return err
		}
		for i := range headers {
			if h := &headers[i]; h.Hash != chain.Hash(h.Number) {
				t.Fatalf("block %d is another chain's", h.Number)
			}
		}
		if headers, err = c.Headers(t.Context(), 11, 900, headers[0].Parent); err == nil {
			t.Fatalf("%d headers end with a hash that nobody has", len(headers))
		}
		if headers, err = c.Headers(t.Context(), 11, 110, [32]byte{}); err == nil && headers[0].Parent != chain.Hash(10) {
			if _, err := c.Vote(t.Context(), 10, false); err != nil { // as follow does
				return err
			}
		}
		if c.endpoints[0].forks == 0 {
			return errors.New("the liar was not counted")
		}
		return nil
	})
	for _, e := range c.endpoints[1:] {
		if e.forks > 0 {
			t.Errorf("%s was counted", e.name)
		}
	}
}

// TestFirstToSeeAReorg: of three endpoints one has another block than the others, as while a reorg goes on. It rests shortly
// and is not counted, unless it goes on.
func TestFirstToSeeAReorg(t *testing.T) {
	other, chain := chains(t, 300, 300)
	c := voters(t, func(*Config) {}, other, chain, chain)
	began := time.Now()
	for time.Since(began) < lostApart {
		h, err := c.Vote(t.Context(), 200, false)
		if err != nil || h.Hash != chain.Hash(200) {
			t.Fatalf("%s: %v", h.Hash, err)
		}
		e := c.endpoints[0]
		if rest, _ := e.score(time.Now()); e.forks > 0 || rest > reorgRest {
			t.Fatalf("it rests for %s and was counted %d times", rest, e.forks)
		}
	}
	polltest.Within(t, 20*time.Second, func() error {
		if _, err := c.Vote(t.Context(), 201, false); err != nil {
			return err
		}
		if c.endpoints[0].forks == 0 {
			return errors.New("it was not counted")
		}
		return nil
	})
}

// TestAReorgThatAllToldOf: blocks that all have told of, and have no more, are no lie.
func TestAReorgThatAllToldOf(t *testing.T) {
	before, chain := chains(t, 300, 300)
	now := &atomic.Bool{}
	node := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if now.Load() {
			chain.ServeHTTP(w, r)
		} else {
			before.ServeHTTP(w, r)
		}
	})
	c := voters(t, func(*Config) {}, node, node, node)
	for _, e := range c.endpoints {
		h, err := e.byNumber(t.Context(), 200)
		if err != nil {
			t.Fatal(err)
		}
		e.tells(h)
	}
	now.Store(true)
	if _, err := c.Vote(t.Context(), 200, false); err != nil {
		t.Fatal(err)
	}
	for _, e := range c.endpoints {
		if e.resting() || e.forks > 0 {
			t.Errorf("%s rests", e.name)
		}
	}
}

// TestSlowIsNotSilent: two honest endpoints take longer than a second for a vote on what is not final, and the third one,
// which answers at once, has another block.
func TestSlowIsNotSilent(t *testing.T) {
	liar, honest := chains(t, 300, 300)
	c := voters(t, func(*Config) {}, liar, later(honest, t, 1300*time.Millisecond), later(honest, t, 1300*time.Millisecond))
	h, err := c.Vote(t.Context(), 200, false)
	if err != nil || h.Hash != honest.Hash(200) {
		t.Errorf("%s: %v", h.Hash, err)
	}
}

// rising is a node whose head rises with each question, and which says that it is syncing, or does not.
type rising struct {
	*rpctest.Sparse
	syncing bool
	head    atomic.Uint64
}

func (n *rising) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m rpctest.Message
	if json.NewDecoder(r.Body).Decode(&m) != nil {
		return
	}
	var result string
	switch first := string(bytes.Join(raws(m.Params), nil)); {
	case m.Method == "eth_syncing" && n.syncing:
		result = `{"currentBlock":"0x10","highestBlock":"0x100","startingBlock":"0x0"}`
	case m.Method == "eth_syncing":
		result = "false"
	case m.Method == "eth_getBlockByNumber" && bytes.Contains([]byte(first), []byte("latest")):
		result = n.Answer(rpctest.Message{Method: m.Method, Params: []json.RawMessage{json.RawMessage(fmt.Sprintf(`"0x%x"`, n.head.Add(1)))}})
	case m.Method == "eth_getBlockByNumber":
		result = "null"
	default:
		result = n.Answer(m)
	}
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func raws(all []json.RawMessage) (b [][]byte) {
	for _, r := range all {
		b = append(b, r)
	}
	return b
}

// TestSyncing: an endpoint whose head rises below what is to be final has a say for as long as it likes. Unless it is syncing:
// it says so itself, or what it calls its head is old. Then it is silent, however often it is polled.
func TestSyncing(t *testing.T) {
	const silence, blocks = 300 * time.Millisecond, 100_000 // ten a second
	for _, test := range []struct {
		name  string
		says  bool
		head  uint64
		hears bool
	}{
		{"rises", false, blocks - 5000, true},
		{"says that it is syncing", true, blocks - 5000, false},
		{"rises in what is old", false, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, chain := chains(t, 1, blocks)
			node := &rising{Sparse: chain, syncing: test.says}
			node.head.Store(test.head)
			c := voters(t, func(cfg *Config) { cfg.Silence = silence }, chain, node)
			ctx, cancel := context.WithTimeout(t.Context(), 5*silence)
			defer cancel()
			_, err := c.Vote(ctx, blocks-100, true)
			for err != nil && ctx.Err() == nil {
				if _, polled := c.Head(ctx, blocks-100); polled != nil && ctx.Err() == nil {
					t.Fatal(polled)
				}
				_, err = c.Vote(ctx, blocks-100, true)
			}
			if test.hears == (err == nil) {
				t.Errorf("the vote ended with: %v", err)
			}
		})
	}
}
