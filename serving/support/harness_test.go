package support

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/big"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/leaktest"
	"github.com/lienstream/lienstream/topics/polltest"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// world is a payment chain, a broker and the desk; services come and go.
type world struct {
	t        testing.TB
	chain    *paychain.Chain
	kafka    kafka.Config
	cat      topics.Catalogue
	router   *read.Router
	producer *kafka.Producer
	cfg      Config
	terms    *x402.Terms
	mining   context.CancelFunc
	mined    sync.WaitGroup
	log      *zap.Logger
	metrics  leaktest.Registries // of all processes

	closeDesk func() // ends the process that holds the desk
	blockTime time.Duration
	highest   uint64 // block that a reorganisation ever found
}

// settings of a world.
type settings struct {
	brokers []string         // kfake by default
	prefix  string           // of topics
	now     func() time.Time // of the payment chain
	log     *zap.Logger      // of all processes; else what the test shows
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return newWorldOf(t, settings{})
}

func newWorldOf(t testing.TB, c settings) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a chain and a broker")
	}
	if c.brokers == nil {
		c.brokers = brokertest.Start(t, "kfake")
	}
	if c.now == nil {
		// Blocks come faster than seconds: a chain that begins a day ago overtakes no authorization while a test runs.
		yesterday := time.Now().Add(-24 * time.Hour)
		c.now = func() time.Time { return yesterday }
	}
	prefix := cmp.Or(c.prefix, "t")
	chain, err := paychain.New(paychain.Config{Now: c.now})
	check(t, err)
	t.Cleanup(func() { _ = chain.Close() })
	w := &world{
		t: t, chain: chain, kafka: brokertest.Config(c.brokers, prefix),
		cat: topics.Catalogue{Prefix: prefix, ChainID: 4663, Partitions: 2}, log: c.log, blockTime: 20 * time.Millisecond,
	}
	brokertest.Apply(t, w.kafka, w.cat.Topics())
	w.producer, err = kafka.NewProducer(w.kafka, "support", kafka.ProducerOptions{})
	check(t, err)
	t.Cleanup(w.producer.Close)
	w.cfg = DefaultConfig()
	w.cfg.HTTP.Listen, w.cfg.HTTP.CursorSecret = "127.0.0.1:0", "a secret of tests, long enough"
	w.cfg.PublicURL = "https://support.example"
	w.cfg.Payment.Asset, w.cfg.Payment.PayTo = chain.Token().Hex(), common.HexToAddress("0x209693Bc6afc0C5328bA36FaF03C514EF312287C").Hex()
	w.cfg.Poll, w.cfg.Wait, w.cfg.Confirmations = 5*time.Millisecond, 20*time.Second, 3
	w.cfg.Resend, w.cfg.ResumeAfter, w.cfg.Reconcile = time.Second, time.Second, 50*time.Millisecond
	w.cfg.Keys = Keys{Token: []TokenKey{{Secret: "token key of tests, thirty-two bytes"}}, Text: []string{"text key of tests, of thirty-two bytes"}}
	w.terms, err = x402.NewTerms(w.cfg.Payment)
	check(t, err)
	w.fund(chain.Address("payer"), 1_000_000_000)
	w.openDesk("a")
	return w
}

// openDesk starts a process that holds the desk, and waits until it answers. It has nothing but what is in Kafka.
func (w *world) openDesk(instance string) {
	w.t.Helper()
	log := w.log
	if log == nil {
		log = zap.NewNop()
	}
	cfg := engine.DefaultConfig()
	cfg.Kafka, cfg.Catalogue, cfg.AppName, cfg.Instance = w.kafka, w.cat, topics.AppSupport, instance
	cfg.Dir, cfg.FS, cfg.Registerer, cfg.Logger = "/"+instance, vfs.NewMem(), w.metrics.New(), log
	cfg.Standbys, cfg.SessionTimeout = 0, 6*time.Second
	node, err := engine.NewCommands(cfg, desk.New(desk.Roster{paychain.Address(0, "ada"): "ada"}, log, w.metrics.New()))
	check(w.t, err)
	routing := read.DefaultConfig()
	routing.Application, routing.Partitions, routing.Local, routing.Instance = topics.AppSupport, w.cat.Partitions, node, instance
	routing.Registerer, routing.Logger = w.metrics.New(), log
	w.router, err = read.NewRouter(routing)
	check(w.t, err)
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{node.Run, w.router.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	w.closeDesk = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(w.closeDesk)
	polltest.Until(w.t, "the desk answers", func() bool {
		for partition := range w.cat.Partitions {
			if _, _, err := w.client().List(ctx, partition, true, nil, 1); err != nil {
				return false
			}
		}
		return true
	})
}

func (w *world) fund(to common.Address, amount int64) {
	w.t.Helper()
	check(w.t, w.chain.Fund(w.t.Context(), to, big.NewInt(amount)))
}

// mine makes a block now and then, as a chain does.
func (w *world) mine() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.mining = cancel
	w.mined.Go(func() {
		for sleep(ctx, w.blockTime) {
			if _, err := w.chain.Mine(ctx); err != nil && ctx.Err() == nil {
				w.t.Error(err)
				return
			}
		}
	})
	w.t.Cleanup(w.stopMining)
}

func (w *world) stopMining() { w.mining(); w.mined.Wait() }

func (w *world) client() *desk.Client {
	return desk.NewClient(w.producer, desk.Routed{Router: w.router}, w.cat)
}

func (w *world) staff() Staff {
	return Staff{Desk: w.client(), Keys: w.cfg.Keys, Name: "ada", Key: w.chain.Key("ada")}
}

// service is one process of the service, until it is stopped.
type service struct {
	*Service
	t    testing.TB
	url  string
	stop func()
}

func (w *world) relayer(name string) *x402.Relayer {
	return w.relayerOn(w.chain.Client(), w.client(), name)
}

func (w *world) relayerOn(chain x402.Sender, client *desk.Client, name string) *x402.Relayer {
	relaying := x402.DefaultRelayerConfig()
	relaying.BumpAfter, relaying.Nonces, relaying.Confirmations = time.Second, NonceQueue{Desk: client, Chain: w.terms.ChainID}, w.cfg.Confirmations
	r, err := x402.NewRelayer(relaying, w.terms, chain, w.chain.Key(name))
	check(w.t, err)
	return r
}

// deps are those of a service whose clock is the payment chain's, which mines faster than seconds pass.
func (w *world) deps(settler x402.Settler) Deps {
	return Deps{
		Desk: w.client(), Chain: w.chain.Client(), Settler: settler,
		Head: func(context.Context) (uint64, error) { return 1000, nil },
	}
}

func (w *world) start(deps Deps) *service {
	w.t.Helper()
	return w.run(w.made(deps))
}

// made is a service that does not run yet.
func (w *world) made(deps Deps) *Service {
	w.t.Helper()
	log := w.log
	switch {
	case log != nil:
	case testing.Verbose():
		log = zaptest.NewLogger(w.t, zaptest.Level(zap.InfoLevel))
	default:
		log = zap.NewNop()
	}
	s, err := New(w.cfg, deps, log, w.metrics.New())
	check(w.t, err)
	return s
}

func (w *world) run(s *Service) *service {
	w.t.Helper()
	x := w.runs(s)
	polltest.Until(w.t, "the service is ready", func() bool { return s.Ready(w.t.Context()) == nil })
	return x
}

// runs is run for a service that is not ready yet, or never.
func (w *world) runs(s *Service) *service {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil && ctx.Err() == nil {
			w.t.Error(err)
		}
	})
	x := &service{Service: s, t: w.t, url: "http://" + s.Addr()}
	x.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	w.t.Cleanup(x.stop)
	return x
}

func digestOf(report []byte) common.Hash { return sha256.Sum256(report) }

// sealed is a report as it is reserved.
func (w *world) sealed(a *x402.Signed, report []byte) []byte {
	w.t.Helper()
	out, err := w.cfg.Keys.Seal(purposeReport, desk.TicketID(a.From, a.Nonce), report)
	check(w.t, err)
	return out
}

// body is a report that is right.
func body(title string) []byte {
	return []byte(`{"title":"` + title + `","severity":"HIGH","contracts":["0x209693Bc6afc0C5328bA36FaF03C514EF312287C"],"forkBlock":1000,` +
		`"description":"**It** drains.","impact":"All of it.","poc":"Call ` + "`drain()`" + `","contact":{"email":"a@example.com"},"agent":{"name":"finder"}}`)
}

// pay signs a payment of key, with a nonce of its own.
func (w *world) pay(key *ecdsa.PrivateKey, nonce string, alter ...func(*x402.Authorization)) *x402.Signed {
	w.t.Helper()
	a := x402.Authorization{
		From: crypto.PubkeyToAddress(key.PublicKey), To: w.terms.Payee, Value: w.terms.Value, ValidBefore: uint64(time.Now().Unix()) + 170,
		Nonce: crypto.Keccak256Hash([]byte(nonce)),
	}
	for _, f := range alter {
		f(&a)
	}
	digest := w.terms.Digest(&a)
	signature, err := crypto.Sign(digest[:], key)
	check(w.t, err)
	signature[64] += 27
	return &x402.Signed{Authorization: a, Signature: signature}
}

func (w *world) header(s *x402.Signed) string {
	w.t.Helper()
	text, err := x402.EncodeHeader(w.terms.Payment(s, x402.Resource{URL: "https://support.example/reports"}))
	check(w.t, err)
	return text
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

func (a answer) code() string {
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal(a.body, &e)
	return e.Error.Code
}

func (a answer) created(t testing.TB) (id, token string) {
	t.Helper()
	var c struct {
		Ticket    struct{ ID string }
		Token     string
		StatusURL string
	}
	if a.status != http.StatusCreated {
		t.Fatalf("status %d, want 201: %s %v", a.status, a.body, a.err)
	}
	check(t, json.Unmarshal(a.body, &c))
	return c.Ticket.ID, c.Token
}

// reason is why a payment was refused, of PAYMENT-RESPONSE.
func (a answer) reason(t testing.TB) x402.Reason {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(a.header.Get(x402.HeaderResponse))
	check(t, err)
	var s x402.Settlement
	if len(text) > 0 {
		check(t, json.Unmarshal(text, &s))
	}
	return s.ErrorReason
}

func (x *service) post(payment string, body []byte) answer {
	x.t.Helper()
	return x.postFrom("", payment, body)
}

// postFrom is post as a client would whom a proxy names.
func (x *service) postFrom(client, payment string, body []byte) answer {
	x.t.Helper()
	req, err := http.NewRequestWithContext(x.t.Context(), http.MethodPost, x.url+"/reports", bytes.NewReader(body))
	check(x.t, err)
	req.Header.Set("Content-Type", "application/json")
	if client != "" {
		req.Header.Set("X-Forwarded-For", client)
	}
	if payment != "" {
		req.Header.Set(x402.HeaderSignature, payment)
	}
	return send(x.t, req)
}

func (x *service) ticket(id, token string) answer {
	x.t.Helper()
	return x.get("/tickets/"+id, token)
}

func (x *service) get(path, token string) answer {
	x.t.Helper()
	req, err := http.NewRequestWithContext(x.t.Context(), http.MethodGet, x.url+path, http.NoBody)
	check(x.t, err)
	req.Header.Set("x-service-ticket-token", token)
	return send(x.t, req)
}

// client keeps the connections of all concurrent requests.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}

func send(t testing.TB, req *http.Request) answer {
	t.Helper()
	res, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		validate(t, req, res, text)
	}
	return answer{res.StatusCode, res.Header, text, err}
}

// paid is what the payee has got, by the chain.
func (w *world) paid() int64 {
	w.t.Helper()
	return w.balance(w.terms.Payee)
}

func (w *world) balance(of common.Address) int64 {
	w.t.Helper()
	data := append(contracts.Selector("balanceOf(address)"), common.LeftPadBytes(of[:], 32)...)
	token := w.chain.Token()
	out, err := w.chain.Client().CallContract(w.t.Context(), ethereumCall(token, data), nil)
	check(w.t, err)
	return new(big.Int).SetBytes(out).Int64()
}
