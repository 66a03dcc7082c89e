package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// proof measures what it costs to prove logs, by each --rpc-proof: of history and at the tip, per block, beside proving
// nothing. The node is asked over HTTP through a proxy that counts.
func (b *bench) proof(ctx context.Context, w *world) error {
	if err := b.provedBackfill(ctx, w); err != nil {
		return err
	}
	var off [2]spent
	for _, policy := range []string{"off", "tip", "all"} {
		of, err := b.proofOf(ctx, w, policy)
		if err != nil {
			return err
		}
		if policy == "off" {
			off = of
		}
		for i, what := range []string{"block of history", "block of 20 logs at the tip"} {
			name := what + ", --rpc-proof=" + policy + ", " + w.kind
			b.add(name, "calls", of[i].calls, off[i].calls, goal{})
			b.add(name, "kB", of[i].kilobytes, off[i].kilobytes, goal{})
			b.add(name, "ms of the node", of[i].node, off[i].node, goal{})
			b.add(name, "ms of ours", of[i].ours, off[i].ours, goal{})
		}
	}
	return nil
}

// provedBackfill compares how long an empty pipeline takes to be ready with how long it takes where nothing is proved, in turns.
func (b *bench) provedBackfill(ctx context.Context, w *world) error {
	policies := []string{"off", "tip", "all"}
	rates := map[string][]float64{}
	for range b.runs {
		for _, policy := range policies {
			rate, err := b.rateOf(ctx, w, policy)
			if err != nil {
				return err
			}
			rates[policy] = append(rates[policy], rate)
		}
	}
	off := median(rates["off"])
	for _, policy := range policies[1:] {
		g := goal{}
		if policy == "tip" {
			g.ratio = 0.9
		}
		b.add("backfill to readiness, --rpc-proof="+policy+" beside off, "+w.kind, "events/s", median(rates[policy]), off, g)
	}
	return nil
}

func (b *bench) rateOf(ctx context.Context, w *world, policy string) (float64, error) {
	logs := float64(b.chain.logs)
	p, err := w.fresh("--rpc-proof=" + policy)
	if err != nil {
		return 0, err
	}
	defer func() { p.kill() }()
	took, err := p.ready(ctx)
	if err != nil {
		return 0, err
	}
	b.note("--rpc-proof=%s: backfill %.2f s", policy, took.Seconds())
	return logs / took.Seconds(), p.stop()
}

// spent is what a block costs.
type spent struct{ calls, kilobytes, node, ours float64 }

func (b *bench) proofOf(ctx context.Context, w *world, policy string) (of [2]spent, err error) {
	m := &meter{node: b.chain.HTTP()}
	if err := m.start(ctx); err != nil {
		return of, err
	}
	defer func() { _ = m.server.Close() }()
	p, err := w.freshOn([]string{"--rpc=" + m.url, "--deployment=" + b.chain.file, "--rpc-proof=" + policy})
	if err != nil {
		return of, err
	}
	defer func() { p.kill() }()
	if err := until(ctx, p.process, indexed(p.addr, b.chain.head)); err != nil {
		return of, err
	}
	cpu, err := p.cpu()
	if err != nil {
		return of, err
	}
	of[0] = m.take().per(b.chain.head, cpu)
	first := b.chain.head
	mining, cancel := context.WithTimeout(ctx, idleSpan)
	defer cancel()
	if err := b.blocks(mining, 100*time.Millisecond, 20); err != nil {
		return of, err
	}
	if err := until(ctx, p.process, indexed(p.addr, b.chain.head)); err != nil {
		return of, err
	}
	after, err := p.cpu()
	if err != nil {
		return of, err
	}
	b.note("--rpc-proof=%s: %d blocks of history, %d at the tip", policy, first, b.chain.head-first)
	of[1] = m.take().per(b.chain.head-first, after-cpu)
	return of, p.stop()
}

// meter is a proxy before a node that counts what it is asked of blocks: neither polls of the head nor of what is final.
type meter struct {
	node, url string
	server    *http.Server

	mu    sync.Mutex
	calls int
	bytes int
	took  time.Duration
}

func (m *meter) start(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.url = "http://" + l.Addr().String()
	m.server = &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	go func() { _ = m.server.Serve(l) }() // until Close
	return nil
}

// counts is what a meter counted.
type counts struct {
	calls, bytes int
	took         time.Duration
}

func (c counts) per(blocks uint64, cpu time.Duration) spent {
	n := float64(blocks)
	return spent{float64(c.calls) / n, float64(c.bytes) / 1000 / n, float64(c.took) / float64(time.Millisecond) / n, float64(cpu) / float64(time.Millisecond) / n}
}

// take returns what was counted since it was taken last.
func (m *meter) take() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := counts{m.calls, m.bytes, m.took}
	m.calls, m.bytes, m.took = 0, 0, 0
	return c
}

// ServeHTTP implements http.Handler.
func (m *meter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	began := time.Now()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, m.node, bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	took := time.Since(began)
	if n := ofBlocks(body); n > 0 {
		m.mu.Lock()
		m.calls, m.bytes, m.took = m.calls+n, m.bytes+len(answer), m.took+took
		m.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// ofBlocks is how many calls of a request are about blocks.
func ofBlocks(body []byte) (n int) {
	type call struct {
		Method string
		Params []json.RawMessage
	}
	var all []call
	if json.Unmarshal(body, &all) != nil {
		all = make([]call, 1)
		_ = json.Unmarshal(body, &all[0])
	}
	for _, c := range all {
		polled := c.Method == "eth_getBlockByNumber" && len(c.Params) > 0 && slices.Contains([]string{`"latest"`, `"finalized"`, `"safe"`}, string(c.Params[0]))
		if !polled && c.Method != "eth_chainId" {
			n++
		}
	}
	return n
}
