package notifier_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/leaktest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// Texts that must not appear anywhere.
const (
	canaryMail     = "cleo.canary@mailbox-of-cleo.example"
	canaryGone     = "gone.canary@mailbox-of-cleo.example"
	canaryChat     = "-1007654321987"
	canaryEndpoint = "canary-of-the-endpoint"
	canaryPassword = "canary-password-of-smtp"
	canaryBot      = "987654:canary-token-of-the-bot"
	canaryAuth     = "BTBZMqHH6r4Tts7J_aSIgg"
	canaryKey      = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
)

// gossip is receivers that repeat, in what they refuse first, all that they were told; later they take it.
type gossip struct {
	t     testing.TB
	mu    sync.Mutex
	came  map[string]int
	taken bytes.Buffer
}

// refuses reports whether something came for the first time.
func (g *gossip) refuses(who string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.came[who]++
	return g.came[who] == 1
}

func (g *gossip) take(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.taken.WriteString(text)
}

// mails serves SMTP; one that asks for a password repeats it.
func (g *gossip) mails(password bool, cert tls.Certificate) int {
	listener, err := (&net.ListenConfig{}).Listen(g.t.Context(), "tcp", "127.0.0.1:0")
	check(g.t, err)
	g.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go g.letter(conn, password, cert)
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// letter is a session of SMTP.
func (g *gossip) letter(conn net.Conn, password bool, cert tls.Certificate) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	text := textproto.NewReader(bufio.NewReader(conn))
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(conn, format+"\r\n", args...) }
	say("220 hello")
	for {
		line, err := text.ReadLine()
		if err != nil {
			return
		}
		switch verb, _, _ := strings.Cut(strings.ToUpper(line), " "); verb {
		case "EHLO":
			if _, secure := conn.(*tls.Conn); password && !secure {
				say("250-gossip\r\n250 STARTTLS")
			} else if password {
				say("250-gossip\r\n250 AUTH PLAIN")
			} else {
				say("250 gossip")
			}
		case "STARTTLS":
			say("220 go on")
			conn = tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{cert}})
			text = textproto.NewReader(bufio.NewReader(conn))
		case "AUTH":
			g.take(line)
			say("535 5.7.8 not with %s", line)
		case "RCPT":
			switch {
			case strings.Contains(line, canaryGone):
				say("550 5.1.1 no such user %s", line)
			case g.refuses(line):
				say("451 4.3.0 not now, %s", line)
			default:
				say("250 ok")
			}
		case "DATA":
			say("354 go on")
			body, err := text.ReadDotBytes()
			if err != nil {
				return
			}
			g.take(string(body))
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// bot serves the Bot API.
func (g *gossip) bot(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		g.t.Error(err)
	}
	all := r.URL.Path + " " + r.FormValue("chat_id") + " " + r.FormValue("text")
	if g.refuses("bot") {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = fmt.Fprintf(w, `{"ok":false,"error_code":500,"description":%q}`, all)
		return
	}
	g.take(all)
	_, _ = io.WriteString(w, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
}

// push serves Web Push.
func (g *gossip) push(w http.ResponseWriter, r *http.Request) {
	if g.refuses("push") {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, "%s %s", r.URL.Path, r.Header.Get("Authorization"))
		return
	}
	g.take(r.URL.Path)
	w.WriteHeader(http.StatusCreated)
}

// canaries are the channels with all secrets, and what is wrong with each when its server is not as it should be.
type canaries struct {
	house *house
	keys  *notifier.Keys
	vapid string
	g     *gossip
	errs  bytes.Buffer
	push  *httptest.Server
	bot   *httptest.Server
}

func newCanaries(h *house) *canaries {
	c := &canaries{house: h, g: &gossip{t: h.t, came: map[string]int{}}}
	var err error
	c.keys, err = notifier.ParseKeys(keyText)
	check(h.t, err)
	c.vapid, _, err = webpush.GenerateVAPIDKeys()
	check(h.t, err)
	c.push = httptest.NewTLSServer(http.HandlerFunc(c.g.push))
	h.t.Cleanup(c.push.Close)
	c.bot = httptest.NewServer(http.HandlerFunc(c.g.bot))
	h.t.Cleanup(c.bot.Close)
	return c
}

var canaryLinks = sender.Links{App: "https://app.example", Notify: "https://notify.example"}

func (c *canaries) email(port int, plain bool) sender.Channel {
	conf := sender.EmailConfig{Host: "127.0.0.1", Port: port, From: "alerts@lien.example", Plain: plain, Links: canaryLinks, TLS: c.trust()}
	if !plain {
		conf.User, conf.Password, conf.TLS.ServerName = "alerts", canaryPassword, conf.Host
	}
	email, err := sender.NewEmail(conf, c.keys)
	check(c.house.t, err)
	return email
}

func (c *canaries) trust() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(c.push.Certificate())
	return &tls.Config{RootCAs: roots}
}

func (c *canaries) telegram(url string) sender.Channel {
	telegram, err := sender.NewTelegram(sender.TelegramConfig{Token: canaryBot, URL: url, Links: canaryLinks}, c.keys)
	check(c.house.t, err)
	return telegram
}

func (c *canaries) webPush(trust *tls.Config) sender.Channel {
	push, err := sender.NewPush(sender.PushConfig{Private: c.vapid, Contact: "ops@lien.example", AllowLoopback: true, TLS: trust, Links: canaryLinks})
	check(c.house.t, err)
	return push
}

func canaryBrowser(url string) string {
	return fmt.Sprintf(`{"endpoint":"%s/%s","keys":{"p256dh":"%s","auth":"%s"}}`, url, canaryEndpoint, canaryKey, canaryAuth)
}

// fail collects what channels and configuration say when all goes wrong.
func (c *canaries) fail() {
	t := c.house.t
	garbage := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, _ = fmt.Fprintf(conn, "nonsense %s\r\n\r\n", r.URL.Path)
			_ = conn.Close()
		}
	}))
	defer garbage.Close()
	tried := 0
	try := func(channel sender.Channel, kind notifier.Channel, to string) {
		t.Helper()
		alert := notifier.Alert{Deal: &notifier.Deal{ID: "7", Cap: "1"}, Stage: notifier.Before6}
		err := channel.Send(t.Context(), &sender.Message{
			ID: strings.Repeat("0", 32), To: to, Channel: kind, Alert: alert, Event: alert.Event(notifier.Address{Channel: kind}),
		})
		if err == nil {
			t.Errorf("%s: it was to fail", kind)
		}
		_, _ = fmt.Fprintf(&c.errs, "%v\n%+v\n%#v\n", err, err, err)
		tried++
	}
	for _, url := range []string{"http://127.0.0.1:1", garbage.URL, "http://nowhere.invalid", "::" + canaryEndpoint} {
		try(c.telegram(url), notifier.Telegram, canaryChat)
	}
	try(c.telegram(c.bot.URL), notifier.Telegram, canaryMail)
	for _, url := range []string{"https://127.0.0.1:1", "https://nowhere.invalid", strings.Replace(garbage.URL, "http:", "https:", 1), "http://127.0.0.1", "https://\r\n"} {
		try(c.webPush(c.trust()), notifier.Push, canaryBrowser(url))
	}
	try(c.webPush(nil), notifier.Push, canaryBrowser(c.push.URL)) // its certificate is not trusted
	try(c.webPush(c.trust()), notifier.Push, canaryMail)
	try(c.email(1, true), notifier.Email, canaryMail)
	try(c.email(c.g.mails(false, tls.Certificate{}), true), notifier.Email, canaryGone)
	try(c.email(c.g.mails(false, tls.Certificate{}), false), notifier.Email, canaryMail) // no TLS there
	try(c.email(c.g.mails(true, c.push.TLS.Certificates[0]), false), notifier.Email, canaryMail)
	try(c.email(1, true), notifier.Email, canaryMail+"\r\nBcc: "+canaryGone)
	_, err := sender.VAPIDPublic(c.vapid + "x")
	_, keyErr := notifier.ParseKeys(keyText + "," + keyText)
	_, lengthErr := notifier.ParseKeys(keyText + "0")
	_, sealErr := c.keys.Open(common.Address{}, notifier.Email, []byte(canaryMail))
	for _, err := range []error{err, keyErr, lengthErr, sealErr} {
		if err == nil {
			t.Error("it was to fail")
		}
		_, _ = fmt.Fprintf(&c.errs, "%v\n%+v\n%#v\n", err, err, err)
	}
	_, _ = fmt.Fprintf(&c.errs, "%v %+v %#v %s", c.keys, c.keys, c.keys, c.keys)
}

// send runs a sender on the channels.
func (c *canaries) send() {
	h := c.house
	producer, err := kafka.NewProducer(h.cfg, "sender", kafka.ProducerOptions{})
	check(h.t, err)
	h.t.Cleanup(producer.Close)
	conf := sender.DefaultConfig()
	conf.Catalogue, conf.Look, conf.FirstWait, conf.Timeout, conf.Hold = h.cat, 10*time.Millisecond, 20*time.Millisecond, 5*time.Second, time.Second
	lines := map[notifier.Channel]*sender.Line{}
	for name, channel := range map[notifier.Channel]sender.Channel{
		notifier.Email: c.email(c.g.mails(false, tls.Certificate{}), true), notifier.Telegram: c.telegram(c.bot.URL), notifier.Push: c.webPush(c.trust()),
	} {
		lines[name] = &sender.Line{Channel: channel, Rate: rate.NewLimiter(rate.Inf, 1)}
	}
	out, err := sender.New(conf, h.node, producer, c.keys, lines, h.log, h.metrics.New())
	check(h.t, err)
	polltest.Run(h.t, out.Run)
	command := func(wallet common.Address, cmd notifier.Command) {
		rec, err := cmd.Record(h.cat, wallet)
		check(h.t, err)
		_, err = producer.Send(h.t.Context(), rec)
		check(h.t, err)
	}
	// What is no command is counted, and skipped.
	_, err = producer.Send(h.t.Context(), &kafka.Record{Topic: h.cat.Commands(topics.AppNotifier), Value: []byte("no command")})
	check(h.t, err)
	const now, hour = 2_000_000_000, 3600
	for _, wallet := range []common.Address{addressOf(h.wallet), {9}} {
		command(wallet, notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: notifier.Deal{
			ID: "7", Borrower: wallet, Cap: "1", FundedAt: now, Expiry: now + 2*hour, GraceEnd: now + 26*hour, Open: true,
		}}})
		for p := range h.cat.Partitions {
			command(wallet, notifier.Command{Tick: &notifier.Tick{From: p, Block: 1, Time: now + hour}})
		}
	}
}

var linkToken = regexp.MustCompile(`token=([0-9a-f]{32})`)

// No address, token or key is in a log, a metric, an error, an answer or a topic, in whatever spelling, of all that the
// notifier does: but sealed in the subscription's own.
func TestNothingSecretLeaks(t *testing.T) {
	var logged zaptest.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(&logged), zap.DebugLevel))
	brokers := brokertest.Start(t, "kfake")
	h := newHouseOn(t, brokers, log)
	c := newCanaries(h)
	wallet := addressOf(h.wallet)
	lower := strings.ToLower(wallet.Hex())
	ask := func(channel, address string) string {
		m := h.message(lower, channel, address, h.next())
		return h.do(0, http.MethodPost, "/notify", postBody(lower, channel, address, allPrefs, m, sign(t, h.wallet, m)))
	}
	h.want(ask("email", canaryMail), `200 {"ok":true}`)
	h.want(ask("telegram", canaryChat), `200 {"ok":true}`)
	h.want(ask("push", canaryBrowser("https://push.lienstream.dev")), `200 {"ok":true}`)
	// A push service on this machine is no address that the service takes.
	h.want(ask("push", canaryBrowser(c.push.URL)), "400 INVALID_INPUT")
	for channel, address := range map[notifier.Channel]string{notifier.Push: canaryBrowser(c.push.URL), notifier.Email: canaryGone} {
		sealed, err := c.keys.Seal(common.Address{9}, channel, address)
		check(t, err)
		_, err = h.client.Subscribe(t.Context(), &notifier.Subscribe{
			ID: notifier.ID{byte(channel)}, Wallet: common.Address{9}, Channel: channel, Sealed: sealed, Mask: "m", Prefs: 0x7f, Unix: 1,
		})
		check(t, err)
	}
	end := h.message(lower, "push", canaryBrowser("https://push.lienstream.dev"), h.next())
	h.want(h.do(1, http.MethodDelete, "/notify/"+lower+"/push", deleteBody(end, sign(t, h.wallet, end))), `200 {"ok":true}`)

	c.send()
	polltest.Until(t, "what is due was sent", func() bool {
		now, err := h.client.Health(t.Context())
		return err == nil && now.Pending == 0 && now.SentLastHour == 3
	})
	c.fail()
	tokens := linkToken.FindAllStringSubmatch(strings.ReplaceAll(strings.ReplaceAll(c.g.taken.String(), "=\r\n", ""), "=3D", "="), -1)
	if len(tokens) < 2 {
		t.Fatalf("%d links in what was received", len(tokens))
	}

	// Everything that a caller may do wrong, with the canaries in it.
	for _, address := range []string{canaryMail + "\r\n", canaryMail + ", " + canaryGone, canaryMail + "x"} {
		ask("email", address)
		ask("telegram", address)
		m := h.message(lower, "email", address, h.now)
		h.do(1, http.MethodPost, "/notify", postBody(lower, "email", canaryMail, allPrefs, m, sign(t, h.wallet, m)))
		h.do(1, http.MethodDelete, "/notify/"+lower+"/email", deleteBody(m, sign(t, h.wallet, m)))
		h.do(1, http.MethodPost, "/notify", `{"wallet":"`+address)
	}
	h.do(0, http.MethodGet, "/notify/"+lower, "")
	h.do(0, http.MethodGet, "/notify/0x0900000000000000000000000000000000000000", "")
	for _, token := range tokens {
		for _, channel := range []string{"email", "telegram", "push"} {
			h.do(0, http.MethodGet, "/unsubscribe?wallet="+lower+"&channel="+channel+"&token="+token[1], "")
			h.do(0, http.MethodGet, "/unsubscribe?wallet="+lower+"&channel="+channel+"&token="+token[1]+"&token="+token[1], "")
			h.do(0, http.MethodPut, "/unsubscribe?token="+token[1], "")
			h.do(1, http.MethodPost, "/unsubscribe?wallet="+lower+"&channel="+channel+"&token="+token[1], "List-Unsubscribe=One-Click")
		}
	}
	h.stopChain() // and a signature cannot be checked
	stranger, err := crypto.GenerateKey()
	check(t, err)
	m := h.message(lower, "email", canaryMail, h.next())
	h.want(h.do(0, http.MethodPost, "/notify", postBody(lower, "email", canaryMail, allPrefs, m, sign(t, stranger, m))), "503 UPSTREAM_UNAVAILABLE")

	places := map[string][]byte{"the log": logged.Bytes(), "the metrics": h.metrics.Gathered(t), "the errors": c.errs.Bytes(), "the answers": h.answers.Bytes()}
	for topic, all := range brokertest.Everything(t, brokers) {
		places["topic "+topic] = all
	}
	c.search(places, tokens)
}

// search looks for the canaries everywhere, and for what must be there.
func (c *canaries) search(places map[string][]byte, tokens [][]string) {
	t := c.house.t
	raw := func(text string) string {
		bytes, err := base64.RawURLEncoding.DecodeString(text)
		check(t, err)
		return string(bytes)
	}
	unhex := func(text string) string {
		bytes, err := hex.DecodeString(text)
		check(t, err)
		return string(bytes)
	}
	_, sealing, _ := strings.Cut(keyText, ":")
	_, bot, _ := strings.Cut(canaryBot, ":")
	secrets := map[string]string{
		"the email address": canaryMail, "the name before the @": "cleo.canary", "the address that is gone": canaryGone,
		"the chat": canaryChat[1:], "the chat's beginning": canaryChat[1:8], "the endpoint": canaryEndpoint,
		"the browser's key": canaryKey, "its bytes": raw(canaryKey), "the browser's secret": canaryAuth, "its bytes too": raw(canaryAuth),
		"the password": canaryPassword, "the bot's token": bot, "the VAPID key": c.vapid, "the VAPID key's bytes": raw(c.vapid),
		"the sealing key": sealing, "the sealing key's bytes": unhex(sealing),
	}
	for i, token := range tokens {
		secrets[fmt.Sprint("the link's token ", i)], secrets[fmt.Sprint("the bytes of the link's token ", i)] = token[1], unhex(token[1])
	}
	subs, err := c.house.client.Subscriptions(t.Context(), common.Address{9})
	check(t, err)
	known := map[string][]byte{"sealed address": subs[0].Sealed, "wallet": addressOf(c.house.wallet).Bytes()}
	found := leaktest.Search(t, places, secrets, known)
	// And it would be found: what was received has all of it, and the topics have what is sealed.
	received := leaktest.Spell(c.g.taken.Bytes())
	for what, secret := range map[string]string{
		"the email address": canaryMail, "the chat": canaryChat[1:], "the endpoint": canaryEndpoint, "the password": canaryPassword,
		"the bot's token": bot, "the link's token": tokens[0][1],
	} {
		if !received.Has([]byte(secret)) {
			t.Errorf("%s was not received: there was nothing to leak", what)
		}
	}
	for _, topic := range []string{c.house.cat.Commands(topics.AppNotifier), c.house.cat.Changelog(topics.AppNotifier)} {
		for what := range known {
			if !slices.Contains(found[what], "topic "+topic) {
				t.Errorf("%s is not in %s: it was found in %v", what, topic, found[what])
			}
		}
	}
	for _, line := range []string{"could not check a contract wallet's signature", "task"} {
		if !bytes.Contains(places["the log"], []byte(line)) {
			t.Errorf("nobody logged %q", line)
		}
	}
	for _, name := range []string{`lienstream_sender_attempts_total{channel="email",class="deal",result="gone",server="known"} 1`, "lienstream_notifier_unread_commands_total", "lienstream_httpapi_requests_total"} {
		if !bytes.Contains(places["the metrics"], []byte(name)) {
			t.Errorf("nobody counted %s", name)
		}
	}
}
