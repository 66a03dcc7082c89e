package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	"github.com/lienstream/lienstream/serving/x402"
)

const (
	payers      = 100
	paymentTime = time.Second // between blocks of the payment chain, whose timestamps are whole seconds
	unpaidEvery = 10 * time.Millisecond
	paidOver    = 25 * time.Second // the payments begin spread over this time, anywhere within a block
)

// till is a payment chain and a support service that is paid on it.
type till struct {
	chain *paychain.Chain
	terms *x402.Terms
	url   string // of reports
}

// payments measures the support service: the latency of the price, that of a paid report besides the block that its
// payment waits for, and whether many payments at once leave gaps in the relayer's nonces.
func (b *bench) payments(ctx context.Context, w *world) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	g := new(errgroup.Group)
	defer func() {
		cancel()
		err = errors.Join(err, g.Wait())
	}()
	addr := address()
	t := &till{url: "http://" + addr + "/reports"}
	// Its clock starts behind ours, because funding a payer advances it by a second.
	anHourAgo := func() time.Time { return time.Now().Add(-time.Hour) }
	if t.chain, err = paychain.New(paychain.Config{Interval: paymentTime, Seed: b.seed, Now: anHourAgo}); err != nil {
		return err
	}
	g.Go(func() error { return t.chain.Run(ctx) })
	flags, err := t.flags(w.cfg.dir)
	if err != nil {
		return err
	}
	p, err := w.freshOn(append([]string{
		"--services=indexer,support", "--applications=market,support", "--chain-addr=" + address(), "--support-addr=" + addr,
	}, flags...))
	if err != nil {
		return err
	}
	defer p.kill()
	if err := until(ctx, p.process, indexed(p.addr, 1)); err != nil {
		return err
	}
	if err := until(ctx, p.process, t.priced); err != nil {
		return err
	}
	if err := b.unpaid(ctx, w, addr); err != nil {
		return err
	}

	random := rand.New(rand.NewPCG(b.seed, 3))
	took, err := t.all(ctx, func(int) time.Duration { return time.Duration(random.Int64N(int64(paidOver))) })
	if err != nil {
		return err
	}
	block := float64(paymentTime) / float64(time.Millisecond)
	b.note("a paid report: p50 %.0f ms", quantile(took, 0.5))
	b.add("a paid report, p99, beyond the payment chain's block time of 1 s, "+w.kind, "ms", quantile(took, 0.99)-block, 0, goal{most: 100})

	relayer := t.chain.Address("relayer")
	before, err := t.chain.Client().NonceAt(ctx, relayer, nil)
	if err != nil {
		return err
	}
	if took, err = t.all(ctx, func(int) time.Duration { return 0 }); err != nil {
		return err
	}
	after, err := t.chain.Client().NonceAt(ctx, relayer, nil)
	if err != nil {
		return err
	}
	b.note("%d at once: p50 %.0f ms", payers, quantile(took, 0.5))
	b.add(fmt.Sprintf("%d payers at once, the last 201, %s", payers, w.kind), "ms", quantile(took, 1), 0, goal{})
	// Each gap takes a transaction more, so without gaps there are as many transactions as payments.
	b.add(fmt.Sprintf("%d payers at once, transactions of the relayer, %s", payers, w.kind), "", float64(after-before), 0, goal{least: payers, most: payers})
	return nil
}

// unpaid measures requests for the price: at a steady rate, and without a pause in turns with the bare handler. Without
// a pause the slowest ones depend on how two processes share the cores.
func (b *bench) unpaid(ctx context.Context, w *world, addr string) error {
	report := request{path: "/reports", body: string(bugReport), or: []int{http.StatusPaymentRequired}}
	bare, err := startBare(ctx, b.config, addr, []request{report})
	if err != nil {
		return err
	}
	defer bare.close()
	turned, cancel := context.WithTimeout(ctx, turns*turn)
	defer cancel()
	latencies, err := steady(turned, addr, unpaidEvery, func(int) request { return report })
	if err != nil {
		return err
	}
	name := "POST /reports without a payment"
	b.add(name+", 16 connections of 100 a second, p99, "+w.kind, "ms", quantile(latencies, 0.99), 0, goal{most: 2})
	var us, them load
	for range turns {
		for to, l := range map[string]*load{addr: &us, bare.addr: &them} {
			part, err := press(ctx, to, []request{report})
			if err != nil {
				return err
			}
			l.merge(part)
		}
	}
	name += ", 16 connections without a pause, " + w.kind
	b.add(name, "requests/s", us.rate(), them.rate(), goal{ratio: 0.5})
	b.add(name+", p99", "ms", quantile(us.latencies, 0.99), quantile(them.latencies, 0.99), goal{})
	return nil
}

// flags name the payment chain to a pipeline.
func (t *till) flags(dir string) ([]string, error) {
	flags := []string{"--payment-rpc=" + t.chain.HTTP(), "--payment-to=" + t.chain.Address("payee").Hex(), "--support-public-url=https://support.example", "--payment-confirmations=3"}
	for flag, secret := range map[string]string{
		"relayer-key-file":        hexutil.Encode(crypto.FromECDSA(t.chain.Key("relayer"))),
		"support-token-keys-file": "of tokens, and the same on all nodes of a bench",
		"support-text-keys-file":  "of texts, and the same on all nodes of a bench",
	} {
		file := filepath.Join(dir, flag)
		if err := os.WriteFile(file, bytes.ReplaceAll([]byte(secret), []byte(" "), []byte("-")), 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, "--"+flag+"="+file)
	}
	return flags, nil
}

var bugReport = []byte(`{"title":"Bench","severity":"LOW","contracts":["0x209693bc6afc0c5328ba36faf03c514ef312287c"],"forkBlock":1,` +
	`"description":"What is wrong.","impact":"What it costs.","contact":{"email":"bench@example.com"}}`)

// priced reports whether the service names its price and is ready. It keeps the terms.
func (t *till) priced(ctx context.Context) error {
	health, _, status, err := fetch(ctx, t.url[:len(t.url)-len("/reports")]+"/health")
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("health: %d %s: %w", status, health, err)
	}
	status, header, body, err := t.post(ctx, "")
	if err != nil || status != http.StatusPaymentRequired {
		return fmt.Errorf("price: %d %s: %w", status, body, err)
	}
	text, err := base64.StdEncoding.DecodeString(header.Get(x402.HeaderRequired))
	if err != nil {
		return err
	}
	var required x402.Required
	if err := json.Unmarshal(text, &required); err != nil {
		return err
	}
	t.terms, err = x402.NewTerms(required.Accepts[0])
	return err
}

func (t *till) post(ctx context.Context, payment string) (status int, header http.Header, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(bugReport))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if payment != "" {
		req.Header.Set(x402.HeaderSignature, payment)
	}
	res, err := payingClient.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, res.Header, body, err
}

// payingClient waits for blocks.
var payingClient = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: payers}}

// all pays a report by each of the payers, who are new, after a pause each. It returns the latencies in ms.
func (t *till) all(ctx context.Context, after func(payer int) time.Duration) ([]float64, error) {
	took := make([]float64, payers)
	keys := make([]*ecdsa.PrivateKey, payers)
	for i := range keys {
		var err error
		if keys[i], err = crypto.GenerateKey(); err != nil {
			return nil, err
		}
		if err := t.chain.Fund(ctx, crypto.PubkeyToAddress(keys[i].PublicKey), t.terms.Value); err != nil {
			return nil, err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	for i, key := range keys {
		wait := after(i)
		g.Go(func() error {
			pause(ctx, wait)
			payment, err := t.payment(key)
			if err != nil {
				return err
			}
			began := time.Now()
			status, _, body, err := t.post(ctx, payment)
			if err != nil || status != http.StatusCreated {
				return fmt.Errorf("a paid report: %d %s: %w", status, body, err)
			}
			took[i] = float64(time.Since(began)) / float64(time.Millisecond)
			return nil
		})
	}
	return took, g.Wait()
}

// payment signs the deposit, as a wallet does.
func (t *till) payment(key *ecdsa.PrivateKey) (string, error) {
	a := x402.Authorization{
		From: crypto.PubkeyToAddress(key.PublicKey), To: t.terms.Payee, Value: new(big.Int).Set(t.terms.Value),
		ValidBefore: uint64(time.Now().Unix() + t.terms.MaxTimeoutSeconds), Nonce: common.Hash(crypto.Keccak256(crypto.FromECDSA(key))),
	}
	digest := t.terms.Digest(&a)
	signature, err := crypto.Sign(digest[:], key)
	if err != nil {
		return "", err
	}
	signature[64] += 27
	return x402.EncodeHeader(t.terms.Payment(&x402.Signed{Authorization: a, Signature: signature}, x402.Resource{URL: t.url}))
}
