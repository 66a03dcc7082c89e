package sender_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// service is a receiver over HTTP that answers each of its customers as it was told to, in turn, and takes what comes
// after that.
type service struct {
	mu      sync.Mutex
	answers map[string][]func(http.ResponseWriter, *http.Request)
	came    map[string][]time.Time
	taken   map[string][]string
	gates   map[string]<-chan struct{} // closed: messages are taken again
}

func newService() *service {
	return &service{answers: map[string][]func(http.ResponseWriter, *http.Request){}, came: map[string][]time.Time{}, taken: map[string][]string{}, gates: map[string]<-chan struct{}{}}
}

// next is what a customer is answered now; nil: its message is taken.
func (s *service) next(who string) func(http.ResponseWriter, *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came[who] = append(s.came[who], time.Now())
	if len(s.answers[who]) == 0 {
		return nil
	}
	answer := s.answers[who][0]
	s.answers[who] = s.answers[who][1:]
	return answer
}

// holds has a customer's messages wait.
func (s *service) holds(who string, until <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[who] = until
}

func (s *service) take(who, message string) {
	s.mu.Lock()
	gate := s.gates[who]
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[who] = append(s.taken[who], message)
}

// one is the message of a customer: the same, if it came twice as an attempt was thought lost.
func (s *service) one(t *testing.T, who string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.taken[who]) == 0 {
		t.Fatalf("%s got nothing", who)
	}
	for _, m := range s.taken[who] {
		if m != s.taken[who][0] {
			t.Fatalf("%s got %q and %q", who, s.taken[who][0], m)
		}
	}
	return s.taken[who][0]
}

func says(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// hangs answers nothing until the client has gone.
func hangs(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// breaks ends the connection within an answer.
func breaks(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = io.WriteString(w, "half of ")
	panic(http.ErrAbortHandler)
}

// waited checks that the second attempt of a customer came as late as its receiver asked for.
func (s *service) waited(t *testing.T, who string, least time.Duration) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if came := s.came[who]; len(came) < 2 || came[1].Sub(came[0]) < least {
		t.Errorf("%s was asked at %v, want %s between", who, came, least)
	}
}

// impatient is the configuration of a sender that gives up waiting soon.
func impatient() sender.Config {
	c := sender.DefaultConfig()
	c.Timeout = 3 * time.Second
	return c
}

const botToken = "12345:secret-of-the-bot"

// onlyTelegram makes the channels of a house that has no other.
func onlyTelegram(t *testing.T, url string) func(*notifier.Keys) map[notifier.Channel]sender.Channel {
	return func(keys *notifier.Keys) map[notifier.Channel]sender.Channel {
		telegram, err := sender.NewTelegram(sender.TelegramConfig{Token: botToken, URL: url, Links: links}, keys)
		check(t, err)
		return map[notifier.Channel]sender.Channel{notifier.Telegram: telegram}
	}
}

// telegramAPI serves Telegram's Bot API to our bot, and returns its URL.
func telegramAPI(t *testing.T, api *service) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/bot"+botToken+"/sendMessage" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			t.Error(err)
		}
		chat := r.FormValue("chat_id")
		if answer := api.next(chat); answer != nil {
			answer(w, r)
			return
		}
		api.take(chat, r.FormValue("text"))
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The Bot API gets each alert, whatever it answers first; a chat that blocked the bot gets no more.
func TestTelegram(t *testing.T) {
	t.Parallel()
	api := newService()
	url := telegramAPI(t, api)
	refusal := func(code int, more string) func(http.ResponseWriter, *http.Request) {
		return says(code, fmt.Sprintf(`{"ok":false,"error_code":%d,"description":"no, chat 42"%s}`, code, more))
	}
	chats := []struct {
		answers  []func(http.ResponseWriter, *http.Request)
		disabled string
		lost     bool
	}{
		{},
		{answers: []func(http.ResponseWriter, *http.Request){refusal(429, `,"parameters":{"retry_after":1}`)}},
		{answers: []func(http.ResponseWriter, *http.Request){says(502, "<html>bad gateway"), breaks, refusal(500, "")}},
		{answers: []func(http.ResponseWriter, *http.Request){hangs}},
		{answers: []func(http.ResponseWriter, *http.Request){says(200, "<html>welcome"), says(200, ""), says(200, `{"ok":false}`), says(200, `[]`), says(200, strings.Repeat("x", 1<<20))}},
		{answers: []func(http.ResponseWriter, *http.Request){refusal(401, "")}}, // our own fault: no address is given up for it
		{answers: []func(http.ResponseWriter, *http.Request){refusal(403, "")}, disabled: "Telegram responded with 403"},
		{answers: []func(http.ResponseWriter, *http.Request){refusal(400, "")}}, // whosever fault it is
		{answers: []func(http.ResponseWriter, *http.Request){says(400, `{"ok":false,"error_code":400,"description":"Bad Request: message is too long"}`)}, lost: true},
		{answers: []func(http.ResponseWriter, *http.Request){says(400, `{"ok":false,"error_code":400,"description":"Bad Request: not enough rights to send text messages to the chat"}`)}, disabled: noChat},
		{answers: []func(http.ResponseWriter, *http.Request){says(400, `{"ok":false,"error_code":400,"description":"Bad Request: CHAT_WRITE_FORBIDDEN"}`)}, disabled: noChat},
	}
	h := newHouse(t, impatient(), onlyTelegram(t, url))
	var wallets []common.Address
	sent := 0
	for i, c := range chats {
		wallet, chat := common.Address{byte(i + 1)}, fmt.Sprint(100+i)
		api.answers[chat] = c.answers
		h.subscribe(wallet, notifier.Telegram, chat, "m")
		wallets = append(wallets, wallet)
		if c.disabled == "" && !c.lost {
			sent++
		}
	}
	h.fire(wallets...)
	h.settled(sent)
	for i, c := range chats {
		if why := h.disabled(wallets[i]); why != c.disabled {
			t.Errorf("chat %d is disabled by %q, want %q", i, why, c.disabled)
		}
		if c.disabled != "" || c.lost {
			continue
		}
		text := api.one(t, fmt.Sprint(100+i))
		for _, part := range []string{
			"Deal 7 expires in 6 hours", "Repay 1234.5 USDG", "https://app.example/deals/7", "UTC",
			"https://notify.example/unsubscribe?", "Alert " + alertID(wallets[i], "telegram"),
		} {
			if !strings.Contains(text, part) {
				t.Errorf("chat %d was told %q, without %q", i, text, part)
			}
		}
	}
	api.waited(t, "101", time.Second)
}

const noChat = "Telegram has no such chat, or the bot may not write there: open the bot, and subscribe again"

// A wallet that subscribes before opening the bot sees that in GET /notify, and gets the alert once the bot is open.
func TestAChatThatHasNotOpenedTheBot(t *testing.T) {
	t.Parallel()
	api := newService()
	url := telegramAPI(t, api)
	api.answers["100"] = []func(http.ResponseWriter, *http.Request){says(400, `{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`)}
	h := newHouse(t, impatient(), onlyTelegram(t, url))
	ann := common.Address{1}
	h.subscribe(ann, notifier.Telegram, "100", "m")
	h.fire(ann)
	polltest.Until(t, "it is shown", func() bool { return h.disabled(ann) == noChat })
	h.again(ann, notifier.Telegram, "100")
	h.settled(1)
	if why := h.disabled(ann); why != "" {
		t.Errorf("disabled by %q", why)
	}
	api.one(t, "100")
}

// Telegram has the message, and describes it in a way that the library does not understand: it is not sent again.
func TestAMessageThatIsDescribedOddly(t *testing.T) {
	t.Parallel()
	api := newService()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseMultipartForm(1 << 20)
		api.take(r.FormValue("chat_id"), r.FormValue("text"))
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message_id":"1","date":1,"chat":{"id":1,"type":"private"}}}`)
	}))
	t.Cleanup(server.Close)
	h := newHouse(t, impatient(), onlyTelegram(t, server.URL))
	ann := common.Address{1}
	h.subscribe(ann, notifier.Telegram, "100", "m")
	h.fire(ann)
	h.settled(1)
	api.one(t, "100")
}

// browser is what subscribed to a push service: it decrypts what that got for it.
type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
}

func newBrowser(t *testing.T) *browser {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	check(t, err)
	b := &browser{key, make([]byte, 16)}
	_, _ = rand.Read(b.auth)
	return b
}

func (b *browser) subscription(endpoint string) string {
	return fmt.Sprintf(`{"endpoint":%q,"expirationTime":null,"keys":{"p256dh":%q,"auth":%q}}`, endpoint,
		base64.RawURLEncoding.EncodeToString(b.key.PublicKey().Bytes()), base64.RawURLEncoding.EncodeToString(b.auth))
}

// decrypt reads a message of one record, by RFC 8188 and RFC 8291.
func (b *browser) decrypt(body []byte) ([]byte, error) {
	if len(body) < 86 || body[20] != 65 {
		return nil, errors.New("no header of aes128gcm")
	}
	salt, record, theirs, sealed := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:86], body[86:]
	if len(sealed) > int(record) {
		return nil, errors.New("more than one record")
	}
	public, err := ecdh.P256().NewPublicKey(theirs)
	if err != nil {
		return nil, err
	}
	secret, err := b.key.ECDH(public)
	if err != nil {
		return nil, err
	}
	derive := func(secret, salt []byte, info string, n int) []byte {
		out, failed := hkdf.Key(sha256.New, secret, salt, info, n)
		err = errors.Join(err, failed)
		return out
	}
	ikm := derive(secret, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(theirs), 32)
	key, nonce := derive(ikm, salt, "Content-Encoding: aes128gcm\x00", 16), derive(ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nonce, sealed, nil)
	if err != nil {
		return nil, err
	}
	plain = bytes.TrimRight(plain, "\x00")
	if len(plain) == 0 || plain[len(plain)-1] != 2 {
		return nil, errors.New("no end of the last record")
	}
	return plain[:len(plain)-1], nil
}

// decryptedElsewhere is a message as http_ece reads it.
func (b *browser) decryptedElsewhere(t *testing.T, body []byte) string {
	t.Helper()
	encode := base64.RawURLEncoding.EncodeToString
	out := apitest.Node(t, "../../../serving/clients", nil, "decrypt.mjs", encode(body), encode(b.key.Bytes()), encode(b.auth))
	plain, err := base64.RawURLEncoding.DecodeString(string(out))
	check(t, err)
	return string(plain)
}

// vapid checks the header by which a push service knows the sender (RFC 8292).
func vapid(header, public, audience string) error {
	var token, key string
	if _, err := fmt.Sscanf(header, "vapid t=%s k=%s", &token, &key); err != nil {
		return fmt.Errorf("authorization: %w", err)
	}
	token, key = strings.TrimSuffix(token, ","), strings.TrimSuffix(key, ",")
	parts := strings.Split(token, ".")
	if key != public || len(parts) != 3 {
		return errors.New("it is not our key's")
	}
	point, err := base64.RawURLEncoding.DecodeString(key)
	if err != nil {
		return err
	}
	signer, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return err
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	hash := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || len(signature) != 64 ||
		!ecdsa.Verify(signer, hash[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		return errors.New("it is not signed by our key")
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var said struct {
		Aud, Sub string
		Exp      int64
	}
	if err := json.Unmarshal(claims, &said); err != nil {
		return err
	}
	if left := time.Until(time.Unix(said.Exp, 0)); said.Aud != audience || said.Sub != "mailto:ops@lien.example" || left <= 0 || left > 24*time.Hour {
		return fmt.Errorf("claims %s", claims)
	}
	return nil
}

// A push service gets each alert, encrypted for its browser, whatever it answers first; a browser that is gone
// gets no more, and redirects are not followed.
func TestPush(t *testing.T) {
	t.Parallel()
	private, public, err := webpush.GenerateVAPIDKeys()
	check(t, err)
	push, browsers := newService(), map[string]*browser{}
	first := make(chan []byte, 1) // to b0, as it came
	var server *httptest.Server
	server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := strings.TrimPrefix(r.URL.Path, "/")
		if who == "elsewhere" {
			t.Error("a redirect was followed")
		}
		if answer := push.next(who); answer != nil {
			answer(w, r)
			return
		}
		if err := vapid(r.Header.Get("Authorization"), public, server.URL); err != nil {
			t.Errorf("%s: %v", who, err)
		}
		body, err := io.ReadAll(r.Body)
		if err == nil && len(body) > 4096 {
			err = errors.New("longer than a push service takes")
		}
		if who == "b0" {
			select {
			case first <- body:
			default:
			}
		}
		var plain []byte
		if err == nil {
			plain, err = browsers[who].decrypt(body)
		}
		if err != nil {
			t.Errorf("%s: %v", who, err)
		}
		if r.Header.Get("TTL") == "" || r.Header.Get("Urgency") != "high" {
			t.Errorf("%s: headers %v", who, r.Header)
		}
		push.take(who, r.Header.Get("Topic")+" "+string(plain))
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	later := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
	}
	redirect := func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}
	loud := func(w http.ResponseWriter, _ *http.Request) { // Go would keep ten such megabytes, of each attempt
		w.Header().Set("X-Loud", strings.Repeat("x", 1<<20))
		w.WriteHeader(http.StatusCreated)
	}
	many := []struct {
		answers  []func(http.ResponseWriter, *http.Request)
		disabled string
		lost     bool
	}{
		{},
		{answers: []func(http.ResponseWriter, *http.Request){later}},
		{answers: []func(http.ResponseWriter, *http.Request){says(503, strings.Repeat("x", 1<<20)), breaks}},
		{answers: []func(http.ResponseWriter, *http.Request){hangs}},
		{answers: []func(http.ResponseWriter, *http.Request){says(403, "bad key")}}, // our own fault
		{answers: []func(http.ResponseWriter, *http.Request){says(410, "")}, disabled: "the push service responded with 410"},
		{answers: []func(http.ResponseWriter, *http.Request){says(404, "")}, disabled: "the push service responded with 404"},
		{answers: []func(http.ResponseWriter, *http.Request){redirect, says(302, ""), says(308, ""), says(409, ""), says(425, "")}}, // which may pass
		{answers: []func(http.ResponseWriter, *http.Request){says(413, "")}, lost: true},
		{answers: []func(http.ResponseWriter, *http.Request){loud}},
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	h := newHouse(t, impatient(), func(*notifier.Keys) map[notifier.Channel]sender.Channel {
		channel, err := sender.NewPush(sender.PushConfig{
			Private: private, Contact: "ops@lien.example", AllowLoopback: true, TLS: &tls.Config{RootCAs: roots}, Links: links,
		})
		check(t, err)
		return map[notifier.Channel]sender.Channel{notifier.Push: channel}
	})
	var wallets []common.Address
	sent := 0
	for i, c := range many {
		wallet, who := common.Address{byte(i + 1)}, fmt.Sprint("b", i)
		push.answers[who], browsers[who] = c.answers, newBrowser(t)
		h.subscribe(wallet, notifier.Push, browsers[who].subscription(server.URL+"/"+who), "127.0.0.1")
		wallets = append(wallets, wallet)
		if c.disabled == "" && !c.lost {
			sent++
		}
	}
	h.fire(wallets...)
	h.settled(sent)
	for i, c := range many {
		if why := h.disabled(wallets[i]); why != c.disabled {
			t.Errorf("browser %d is disabled by %q, want %q", i, why, c.disabled)
		}
		if c.disabled != "" || c.lost {
			continue
		}
		topic, payload, _ := strings.Cut(push.one(t, fmt.Sprint("b", i)), " ")
		if topic != alertID(wallets[i], "push") {
			t.Errorf("browser %d: topic %q", i, topic)
		}
		var got struct {
			ID, Title, URL string
			Facts          struct{ DealID, Kind, Repay string }
		}
		check(t, json.Unmarshal([]byte(payload), &got))
		if got.ID != topic || got.Title != "Deal 7 expires in 6 hours" || got.URL != "https://app.example/deals/7" ||
			got.Facts.Kind != "t6" || got.Facts.DealID != "7" || got.Facts.Repay != "1234.5 USDG" {
			t.Errorf("browser %d was told %s", i, payload)
		}
	}
	push.waited(t, "b1", time.Second)
	if _, payload, _ := strings.Cut(push.one(t, "b0"), " "); browsers["b0"].decryptedElsewhere(t, <-first) != payload {
		t.Errorf("others decrypt something else than %s", payload)
	}
}

// Nothing inside our network is asked, however an endpoint spells it.
func TestPushGuard(t *testing.T) {
	private, _, err := webpush.GenerateVAPIDKeys()
	check(t, err)
	reached := false
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	guarded, err := sender.NewPush(sender.PushConfig{Private: private, Contact: "ops@lien.example", TLS: &tls.Config{RootCAs: roots}})
	check(t, err)
	at, err := url.Parse(server.URL)
	check(t, err)
	b := newBrowser(t)
	for _, endpoint := range []string{
		server.URL, "https://localhost:" + at.Port(), "https://127.1:" + at.Port(), "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://10.0.0.1/",
		"https://169.254.169.254/latest", "https://100.64.0.1/", "https://0.0.0.0/", "https://[fe80::1]/", "https://[fd00::1]/", "https://[64:ff9b::7f00:1]/",
		"https://[2002:7f00:1::]/", "https://224.0.0.1/", "http://" + at.Host,
	} {
		err := guarded.Send(t.Context(), &sender.Message{
			ID: "1", To: b.subscription(endpoint), Channel: notifier.Push, Alert: notifier.Alert{Deal: &notifier.Deal{Cap: "1"}},
		})
		failure, ok := errors.AsType[*sender.Failure](err)
		if !ok || !failure.Dead && !failure.Gone && failure.Reason != "the server's name could not be resolved" && failure.Reason != "the push endpoint is not on a public host" {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if reached {
		t.Error("a server on this machine was asked")
	}
}

// TestAChatOfManyWallets: what waits for a chat that asked for a pause is no refusal of Telegram's, which was not
// asked.
func TestAChatOfManyWallets(t *testing.T) {
	const takes, wallets = 3, 30
	var asked atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > takes {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 900","parameters":{"retry_after":900}}`)
			return
		}
		_, _ = io.WriteString(w, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
	}))
	t.Cleanup(api.Close)
	h := newHouse(t, impatient(), onlyTelegram(t, api.URL))
	for i := range wallets {
		h.subscribe(common.Address{byte(i + 1)}, notifier.Telegram, "-100200300", "m")
	}
	h.everybody(notifier.Command{News: &notifier.News{Stage: notifier.EpochOpen, Epoch: 5, At: genesis, StartsAt: genesis, EndsAt: genesis + 1000*hour, Budget7: "1", Budget21: "1"}})
	h.fire()
	attempts := func(result string) int64 { return int64(h.gauge("lienstream_sender_attempts_total", "result", result)) }
	polltest.Until(t, "each was tried", func() bool { return attempts("sent")+attempts("retry")+attempts("paused") >= wallets })
	if sent, retry := attempts("sent"), attempts("retry"); sent != takes || sent+retry != asked.Load() {
		t.Errorf("%d sent and %d refused of %d that Telegram was asked", sent, retry, asked.Load())
	}
}
