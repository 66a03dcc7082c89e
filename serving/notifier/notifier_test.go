package notifier_test

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/accounts"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/serving/chain"
	serving "github.com/lienstream/lienstream/serving/notifier"
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

// house is the notifier as it runs: a broker, a node of the engine, a router, a chain, the service.
type house struct {
	t        testing.TB
	cfg      kafka.Config
	cat      topics.Catalogue
	node     *engine.Node
	client   *notifier.Client
	chain    *devchain.Chain
	services []*serving.Service
	wallet   *ecdsa.PrivateKey
	now      int64
	log      *zap.Logger
	metrics  leaktest.Registries
	routing  *prometheus.Registry // of the first service's reads
	mu       sync.Mutex
	answers  bytes.Buffer // all of them
}

// factory is the deterministic deployer that most chains have: its input is a salt and creation code.
var factory = struct {
	at   common.Address
	code []byte
}{
	common.HexToAddress("0x4e59b44847b379578588920cA78FbF26c0B4956C"),
	hexutil.MustDecode("0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe03601600081602082378035828234f58015156039578182fd5b8082525050506014600cf3"),
}

const keyText = "1:" + "0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20"

func newHouse(t testing.TB, kind string) *house {
	return newHouseOn(t, brokertest.Start(t, kind), zap.NewNop())
}

func newHouseOn(t testing.TB, brokers []string, log *zap.Logger) *house {
	h := &house{t: t, cfg: brokertest.Config(brokers, "n"), now: time.Now().Unix() - 250, log: log}
	h.cat = topics.Catalogue{Prefix: "n", ChainID: 1, Partitions: 4}
	brokertest.Apply(t, h.cfg, h.cat.Topics())
	var err error
	cfg := engine.DefaultConfig()
	cfg.Kafka, cfg.Catalogue, cfg.AppName, cfg.Instance = h.cfg, h.cat, topics.AppNotifier, "a"
	cfg.Dir, cfg.FS, cfg.Registerer, cfg.Logger = "/a", vfs.NewMem(), h.metrics.New(), h.log
	cfg.Standbys, cfg.SessionTimeout = 0, 6*time.Second
	h.node, err = engine.NewCommands(cfg, notifier.New(h.cat.Partitions, h.metrics.New()))
	check(t, err)
	polltest.Run(h.t, h.node.Run)

	h.chain, err = devchain.New(devchain.Config{Alloc: types.GenesisAlloc{factory.at: {Balance: new(big.Int), Code: factory.code}}})
	check(t, err)
	t.Cleanup(h.stopChain)
	client := h.over(h.chain.HTTP())
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	for i := range 2 { // two serving nodes: what one writes, the other reads
		producer, err := kafka.NewProducer(h.cfg, fmt.Sprintf("notify-%d", i), kafka.ProducerOptions{})
		check(t, err)
		t.Cleanup(producer.Close)
		routing := read.DefaultConfig()
		routing.Application, routing.Partitions, routing.Local = topics.AppNotifier, h.cat.Partitions, h.node
		reg := h.metrics.New()
		if i == 0 {
			h.routing = reg
		}
		routing.Registerer = reg
		router, err := read.NewRouter(routing)
		check(t, err)
		h.client = notifier.NewClient(h.cat, producer, router)
		s, err := serving.New(serving.DefaultConfig(), h.client, client, keys, h.log, h.metrics.New())
		check(t, err)
		h.services = append(h.services, s)
	}
	polltest.Within(t, time.Minute, func() error { return h.services[0].Ready(t.Context()) })
	h.wallet, err = crypto.GenerateKey()
	check(t, err)
	return h
}

// over is a client of the chain's nodes at these URLs.
func (h *house) over(urls ...string) *chain.Client {
	h.t.Helper()
	cfg := chain.DefaultConfig()
	cfg.ChainID, cfg.Endpoints, cfg.Timeout = devchain.DefaultChainID, urls, 10*time.Second
	client, err := chain.New(cfg, nil, h.log, h.metrics.New())
	check(h.t, err)
	_, err = client.Refresh(h.t.Context())
	check(h.t, err)
	return client
}

// stopChain ends the chain, once.
func (h *house) stopChain() {
	if h.chain != nil {
		check(h.t, h.chain.Close())
		h.chain = nil
	}
}

func addressOf(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }

func sign(t testing.TB, key *ecdsa.PrivateKey, message string) []byte {
	t.Helper()
	sig, err := crypto.Sign(accounts.TextHash([]byte(message)), key)
	check(t, err)
	sig[64] += 27
	return sig
}

// next is a time that no message has had yet.
func (h *house) next() int64 {
	h.now++
	return h.now
}

func (h *house) message(wallet, channel, address string, unix int64) string {
	return fmt.Sprintf("service notify %s %s %s %d", wallet, channel, address, unix)
}

const allPrefs = `{"t48":true,"t24":true,"t6":false,"t1":true,"expiry":true,"budget":false,"epoch":true}`

func postBody(wallet, channel, address, prefs, message string, signature []byte) string {
	quote := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	return fmt.Sprintf(`{"wallet":%s,"channel":%s,"address":%s,"prefs":%s,"message":%s,"signature":"%s"}`,
		quote(wallet), quote(channel), quote(address), prefs, quote(message), hexutil.Encode(signature))
}

// do asks one of the serving nodes, and returns the status and the code of an error, or the body.
func (h *house) do(node int, method, path, body string) string {
	h.t.Helper()
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(body, "List") {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return h.answer(node, req)
}

// answer is do for a request.
func (h *house) answer(node int, req *http.Request) string {
	h.t.Helper()
	res := httptest.NewRecorder()
	h.services[node].ServeHTTP(res, req)
	h.mu.Lock()
	_ = res.Result().Header.Write(&h.answers)
	h.answers.Write(res.Body.Bytes())
	h.mu.Unlock()
	var failed struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(res.Body.Bytes(), &failed) == nil && failed.Error.Code != "" {
		h.t.Logf("%s %s: %s", req.Method, req.URL, failed.Error.Message)
		return fmt.Sprintf("%d %s", res.Code, failed.Error.Code)
	}
	return fmt.Sprintf("%d %s", res.Code, res.Body)
}

func (h *house) want(got, want string) {
	h.t.Helper()
	if got != want {
		h.t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestSubscriptions(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) { testSubscriptions(t, newHouse(t, kind)) })
	}
}

func testSubscriptions(t *testing.T, h *house) {
	wallet := addressOf(h.wallet)
	lower := strings.ToLower(wallet.Hex())
	list := "/notify/" + lower
	h.want(h.do(0, http.MethodGet, list, ""), `200 {"subscriptions":[]}`)
	for _, wrong := range []string{`"yes"`, "1", "null", "{}"} {
		prefs := strings.Replace(allPrefs, `"epoch":true`, `"epoch":`+wrong, 1)
		h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", prefs, "m", []byte{1})), "400 INVALID_INPUT")
		if want := `"\"prefs.epoch\" is required: true or false"`; !strings.Contains(h.answers.String(), want) {
			t.Fatalf("%s: %s, want %s", prefs, h.answers.String(), want)
		}
		h.answers.Reset()
	}

	// Both spellings of the wallet; an answer is seen at once, through the other node.
	email := "ann@example.com"
	m := h.message(lower, "email", email, h.next())
	captured := postBody(lower, "email", email, allPrefs, m, sign(t, h.wallet, m))
	h.want(h.do(0, http.MethodPost, "/notify", captured), `200 {"ok":true}`)
	if got := h.do(1, http.MethodGet, list, ""); !strings.Contains(got, `"address":"a•••@example.com","prefs":`+allPrefs) || strings.Contains(got, "ann@") {
		t.Fatal(got)
	}
	m = h.message(wallet.Hex(), "telegram", "-1001234567", h.next())
	h.want(h.do(1, http.MethodPost, "/notify", postBody(wallet.Hex(), "telegram", "-1001234567", allPrefs, m, sign(t, h.wallet, m))), `200 {"ok":true}`)
	if got := h.do(0, http.MethodGet, list, ""); !strings.Contains(got, `"channel":"telegram","address":"•••4567"`) {
		t.Fatal(got)
	}

	// What has ended is gone, and its message stays used.
	m = h.message(lower, "email", email, h.next())
	gone := sign(t, h.wallet, m)
	remove := func() string { return h.do(1, http.MethodDelete, list+"/email", deleteBody(m, gone)) }
	h.want(remove(), `200 {"ok":true}`)
	if got := h.do(0, http.MethodGet, list, ""); strings.Contains(got, "email") || !strings.Contains(got, "telegram") {
		t.Fatal(got)
	}
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", email, allPrefs, m, gone)), "401 SIGNATURE_REUSED")
	h.want(h.do(0, http.MethodPost, "/notify", captured), "401 SIGNATURE_REUSED")
	h.want(remove(), "404 NOT_FOUND")

	// A link ends the subscription that it was made for, and no later one.
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	var created struct{ Subscriptions []struct{ CreatedAt int64 } }
	check(t, json.Unmarshal([]byte(strings.TrimPrefix(h.do(0, http.MethodGet, list, ""), "200 ")), &created))
	link := fmt.Sprintf("/unsubscribe?wallet=%s&channel=telegram&token=%s", lower, keys.Link(wallet, notifier.Telegram, created.Subscriptions[0].CreatedAt, "-1001234567"))
	if got := h.do(0, http.MethodGet, link, ""); !strings.Contains(got, "•••4567") || !strings.Contains(got, "End these alerts?") {
		t.Fatal(got)
	}
	if got := h.do(0, http.MethodPost, link[:len(link)-1]+"x", "List-Unsubscribe=One-Click"); !strings.Contains(got, "This link is no longer good") {
		t.Fatal(got)
	}
	if got := h.do(0, http.MethodGet, list, ""); !strings.Contains(got, "telegram") {
		t.Fatal("a link that nobody made ended a subscription: " + got)
	}
	if got := h.do(0, http.MethodPost, link, "List-Unsubscribe=One-Click"); !strings.Contains(got, "No more alerts") {
		t.Fatal(got)
	}
	h.want(h.do(1, http.MethodGet, list, ""), `200 {"subscriptions":[]}`)
	h.want(h.do(0, http.MethodGet, "/health", ""), `200 {"ok":true,"pending":0,"sentLastHour":0}`)

	// Nothing that was stored or sent holds an address in the clear.
	for _, topic := range []string{h.cat.Commands(topics.AppNotifier), h.cat.Changelog(topics.AppNotifier)} {
		for p := range h.cat.Partitions {
			check(t, kafka.ReadBack(t.Context(), h.cfg, topic, p, 0, func(r *kafka.Record) bool {
				if strings.Contains(string(r.Value), email) || strings.Contains(string(r.Value), "1001234567") {
					t.Errorf("%s holds an address in the clear", topic)
				}
				return true
			}))
		}
	}
}

// The notifier is told of an address that stays: what waits for it is not tried anew by a change of preferences.
// Another one is new.
func TestAnAddressThatStays(t *testing.T) {
	h := newHouse(t, "kfake")
	wallet := addressOf(h.wallet)
	lower := strings.ToLower(wallet.Hex())
	first := int64(0)
	for _, c := range []struct {
		address string
		stays   bool
	}{{"ann@example.com", false}, {"ann@example.com", true}, {"ann@example.com", true}, {"anna@example.com", false}, {"ann@example.com", false}} {
		m := h.message(lower, "email", c.address, h.next())
		h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", c.address, allPrefs, m, sign(t, h.wallet, m))), `200 {"ok":true}`)
		if !c.stays {
			first = h.now
		}
		subs, err := h.client.Subscriptions(t.Context(), wallet)
		check(t, err)
		if len(subs) != 1 || subs[0].Of() != first || subs[0].Unix != h.now {
			t.Errorf("%s of %d is named by %d: %+v", c.address, h.now, first, subs)
		}
	}
}

// A contract wallet signs, before it is deployed and after; if the chain cannot be read, no wallet is refused for good.
func TestContractWallets(t *testing.T) {
	owner, err := crypto.GenerateKey()
	check(t, err)
	creation, err := contracts.Bytecode("OwnedWallet")
	check(t, err)
	creation = append(creation, common.LeftPadBytes(addressOf(owner).Bytes(), 32)...)
	planned := crypto.CreateAddress2(factory.at, common.Hash{}, crypto.Keccak256(creation))
	h := newHouse(t, "kfake")

	lower := strings.ToLower(planned.Hex())
	m := h.message(lower, "email", "ann@example.com", h.next())
	inner := owned(sign(t, owner, m))
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, inner)), "401 INVALID_SIGNATURE")
	wrapped := wrap6492(t, factory.at, append(make([]byte, 32), creation...), inner)
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, wrapped)), `200 {"ok":true}`)

	stranger, err := crypto.GenerateKey()
	check(t, err)
	m = h.message(lower, "email", "ann@example.com", h.next())
	forged := wrap6492(t, factory.at, append(make([]byte, 32), creation...), owned(sign(t, stranger, m)))
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, forged)), "401 INVALID_SIGNATURE")
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, append([]byte{1}, magic6492...))), "401 INVALID_SIGNATURE")

	// A chain that cannot be asked says nothing about the signature; a key's needs no chain.
	h.stopChain()
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, forged)), "503 UPSTREAM_UNAVAILABLE")
	lower = strings.ToLower(addressOf(h.wallet).Hex())
	m = h.message(lower, "email", "ann@example.com", h.next())
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, sign(t, h.wallet, m))), `200 {"ok":true}`)
}

// One of two nodes lets no stranger in, and keeps no wallet out.
func TestContractWalletsOfOneNode(t *testing.T) {
	h := newHouse(t, "kfake")
	liar, honest := rpctest.NewLiar(t, h.chain.HTTP(), 0), rpctest.NewLiar(t, h.chain.HTTP(), 0)
	liar.Tells(func(_ http.ResponseWriter, _ *http.Request, req rpctest.Message, resp *rpctest.Message) bool {
		if req.Method == "eth_call" {
			resp.Say("0x01")
		}
		return false
	})
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	stranger, err := crypto.GenerateKey()
	check(t, err)
	wallet := strings.ToLower(factory.at.Hex()) // a contract that signs nothing
	for _, urls := range [][]string{{liar.URL}, {liar.URL, honest.URL}, {honest.URL, liar.URL}} {
		s, err := serving.New(serving.DefaultConfig(), h.client, h.over(urls...), keys, h.log, h.metrics.New())
		check(t, err)
		h.services = append(h.services, s)
		want := "503 UPSTREAM_UNAVAILABLE"
		if len(urls) == 1 {
			want = `200 {"ok":true}` // its word is all there is
		}
		m := h.message(wallet, "email", "ann@example.com", h.next())
		h.want(h.do(len(h.services)-1, http.MethodPost, "/notify", postBody(wallet, "email", "ann@example.com", allPrefs, m, sign(t, stranger, m))), want)
	}
}

// owned is a signature as the wallet of the test takes it.
func owned(signature []byte) []byte { return append([]byte{1}, signature...) }
