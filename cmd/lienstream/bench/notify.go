package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/accounts"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
)

// Wallets that subscribe: those that count, and before them those that do not, by which all is warm.
const (
	subscribed = 4_000
	warming    = 800
)

// notify measures subscriptions beside the embedded chain: signed by a wallet each, over 16 connections, from the request until
// it is applied and answered.
func (b *bench) notify(ctx context.Context, w *world) error {
	addr := address()
	p, err := w.freshOn([]string{"--services=indexer,notifier", "--applications=market,notifier", "--chain-addr=" + address(), "--notify-addr=" + addr})
	if err != nil {
		return err
	}
	defer p.kill()
	if err := until(ctx, p.process, func(ctx context.Context) error {
		body, _, status, err := fetch(ctx, "http://"+addr+"/health")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("health: %d %s", status, body)
		}
		return err
	}); err != nil {
		return err
	}
	for _, n := range []int{warming, subscribed} {
		signed, err := subscriptions(n)
		if err != nil {
			return err
		}
		began := time.Now()
		took, err := ask(ctx, addr, func(_ context.Context, conn int) iter.Seq[request] {
			return slices.Values(signed[conn*n/connections : (conn+1)*n/connections])
		})
		if err != nil {
			return err
		}
		if n == subscribed {
			b.note("POST /notify: p50 %.1f ms", quantile(took, 0.5))
			b.add("POST /notify, "+w.kind, "answers/s", float64(n)/time.Since(began).Seconds(), 0, goal{})
			b.add("POST /notify, p99, "+w.kind, "ms", quantile(took, 0.99), 0, goal{most: 50})
		}
	}
	return nil
}

// subscriptions are what so many new wallets post.
func subscriptions(n int) ([]request, error) {
	all := make([]request, n)
	for i := range all {
		key, err := crypto.GenerateKey()
		if err != nil {
			return nil, err
		}
		wallet := strings.ToLower(crypto.PubkeyToAddress(key.PublicKey).Hex())
		to := fmt.Sprintf("a%d@example.com", i)
		message := fmt.Sprintf("service notify %s email %s %d", wallet, to, time.Now().Unix())
		signature, err := crypto.Sign(accounts.TextHash([]byte(message)), key)
		if err != nil {
			return nil, err
		}
		signature[64] += 27
		prefs := map[string]bool{}
		for _, kind := range []string{"t48", "t24", "t6", "t1", "expiry", "budget", "epoch"} {
			prefs[kind] = true
		}
		body, err := json.Marshal(map[string]any{
			"wallet": wallet, "channel": "email", "address": to, "prefs": prefs, "signature": hexutil.Encode(signature), "message": message,
		})
		if err != nil {
			return nil, err
		}
		all[i] = request{path: "/notify", body: string(body)}
	}
	return all, nil
}
