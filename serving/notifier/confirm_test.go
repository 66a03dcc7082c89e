package notifier_test

import (
	"fmt"
	"html"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	serving "github.com/lienstream/lienstream/serving/notifier"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/leaktest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// town is a house whose services have addresses confirmed, a mail server, and Telegram.
type town struct {
	*house
	keys     *notifier.Keys
	producer *kafka.Producer

	mu    sync.Mutex
	mails []letter
	chats []string // that were sent something
	hook  [2]string

	logged zaptest.Buffer
}

// letter is a mail that came.
type letter struct{ to, subject, text string }

// mailbox is a session of SMTP.
type mailbox struct {
	w  *town
	to string
}

func (w *town) NewSession(*smtp.Conn) (smtp.Session, error) { return &mailbox{w: w}, nil }

func (*mailbox) Mail(string, *smtp.MailOptions) error { return nil }
func (*mailbox) Reset()                               {}
func (*mailbox) Logout() error                        { return nil }

func (m *mailbox) Rcpt(to string, _ *smtp.RcptOptions) error { m.to = to; return nil }

func (m *mailbox) Data(body io.Reader) error {
	got, err := mail.ReadMessage(body)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.MultiReader(strings.NewReader(got.Header.Get("List-Unsubscribe")), quotedprintable.NewReader(got.Body)))
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	m.w.mails = append(m.w.mails, letter{m.to, got.Header.Get("Subject"), string(text)})
	return err
}

func (w *town) bot(rw http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/setWebhook") {
		w.hook = [2]string{r.FormValue("url"), r.FormValue("secret_token")}
		_, _ = io.WriteString(rw, `{"ok":true,"result":true}`)
		return
	}
	w.chats = append(w.chats, r.FormValue("chat_id"))
	_, _ = io.WriteString(rw, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
}

func newTown(t *testing.T, kind string) *town {
	w := new(town)
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(&w.logged), zap.DebugLevel))
	w.house = newHouseOn(t, brokertest.Start(t, kind), log)
	var err error
	w.keys, err = notifier.ParseKeys(keyText)
	check(t, err)
	conf := serving.DefaultConfig()
	conf.Confirm, conf.Asks = true, 100
	for i := range w.services {
		w.services[i], err = serving.New(conf, w.client, w.over(w.chain.HTTP()), w.keys, w.log, w.metrics.New())
		check(t, err)
	}
	server := smtp.NewServer(w)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	bot := httptest.NewServer(http.HandlerFunc(w.bot))
	t.Cleanup(bot.Close)
	email, err := sender.NewEmail(sender.EmailConfig{
		Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, From: "alerts@lien.example", Plain: true, Links: canaryLinks,
	}, w.keys)
	check(t, err)
	telegram, err := sender.NewTelegram(sender.TelegramConfig{Token: "1:token", URL: bot.URL, Links: canaryLinks}, w.keys)
	check(t, err)
	check(t, telegram.Listen(t.Context(), w.log))
	w.producer, err = kafka.NewProducer(w.cfg, "sender", kafka.ProducerOptions{})
	check(t, err)
	t.Cleanup(w.producer.Close)
	sending := sender.DefaultConfig()
	sending.Catalogue, sending.Look, sending.Hold = w.cat, 10*time.Millisecond, time.Second
	lines := map[notifier.Channel]*sender.Line{}
	for name, channel := range map[notifier.Channel]sender.Channel{notifier.Email: email, notifier.Telegram: telegram} {
		lines[name] = &sender.Line{Channel: channel, Rate: rate.NewLimiter(rate.Inf, 1)}
	}
	out, err := sender.New(sending, w.node, w.producer, w.keys, lines, w.log, w.metrics.New())
	check(t, err)
	polltest.Run(w.t, out.Run)
	return w
}

// post has the wallet of the house subscribe.
func (w *town) post(node int, channel, address string) string {
	w.t.Helper()
	lower := strings.ToLower(addressOf(w.wallet).Hex())
	m := w.message(lower, channel, address, w.next())
	return w.do(node, http.MethodPost, "/notify", postBody(lower, channel, address, allPrefs, m, sign(w.t, w.wallet, m)))
}

// shown is the public view of the wallet.
func (w *town) shown(node int) string {
	return w.do(node, http.MethodGet, "/notify/"+strings.ToLower(addressOf(w.wallet).Hex()), "")
}

// letters waits for so many mails.
func (w *town) letters(n int) []letter {
	w.t.Helper()
	var all []letter
	polltest.Within(w.t, time.Minute, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if all = append(all[:0], w.mails...); len(all) < n {
			return fmt.Errorf("%d mails of %d", len(all), n)
		}
		return nil
	})
	if len(all) > n {
		w.t.Fatalf("%d mails, want %d: %+v", len(all), n, all)
	}
	return all
}

// due has a deal of the wallet come due, and waits until nothing is left to send.
func (w *town) due(n uint64) {
	w.t.Helper()
	wallet := addressOf(w.wallet)
	const start, hour = 2_000_000_000, 3600
	at := start + n*10*hour
	command := func(cmd notifier.Command) {
		rec, err := cmd.Record(w.cat, wallet)
		check(w.t, err)
		_, err = w.producer.Send(w.t.Context(), rec)
		check(w.t, err)
	}
	deal := notifier.Deal{ID: fmt.Sprint(n), Borrower: wallet, Cap: "1", FundedAt: at, Expiry: at + 2*hour, GraceEnd: at + 26*hour, Open: true}
	command(notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: deal}})
	for p := range w.cat.Partitions {
		command(notifier.Command{Tick: &notifier.Tick{From: p, Block: n, Time: at + hour}})
	}
	// A write is answered once it is applied, and so is all that was written before it.
	_, err := w.client.Unsubscribe(w.t.Context(), &notifier.Unsubscribe{ID: notifier.ID{byte(n)}, Wallet: wallet, Channel: notifier.Push})
	check(w.t, err)
	polltest.Until(w.t, "all is sent", func() bool {
		now, err := w.client.Health(w.t.Context())
		return err == nil && now.Pending == 0
	})
	deal.Open = false
	command(notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: deal, At: at + hour}})
}

var confirmLink = regexp.MustCompile(`https://notify\.example(/confirm\?\S*code=[0-9a-f]{32})`)

var endLink = regexp.MustCompile(`https://notify\.example/unsubscribe\?\S*token=[0-9a-f]{32}`)

func linkIn(t *testing.T, l letter) string {
	t.Helper()
	found := confirmLink.FindStringSubmatch(l.text)
	if found == nil || l.subject != "Confirm this address for alerts" {
		t.Fatalf("no request to confirm an address: %+v", l)
	}
	return found[1]
}

const confirmForm = "confirm=yes"

// No alert goes to an email address before its owner has followed the link that went there; a link is good for the
// address that it was made for, and alerts go on when the wallet changes what it wants.
func TestConfirmByLink(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) { testConfirmByLink(t, newTown(t, kind)) })
	}
}

func testConfirmByLink(t *testing.T, w *town) {
	asked := `200 {"confirm":{"by":"link","sent":true},"ok":true}`
	w.want(w.post(0, "email", "bob@example.com"), asked)
	if got := w.shown(1); !strings.Contains(got, `"disabled":"the address is not confirmed","confirmBy":1`) || !strings.Contains(got, `b•••@example.com`) {
		t.Fatal(got)
	}
	first := linkIn(t, w.letters(1)[0])
	w.due(1)
	w.letters(1) // and no alert

	// Another address: the link to the first is of no use.
	w.want(w.post(1, "email", "ann@example.com"), asked)
	mails := w.letters(2)
	link := linkIn(t, mails[1])
	if mails[1].to != "ann@example.com" || link == first || !strings.Contains(mails[1].text, addressOf(w.wallet).Hex()) {
		t.Fatalf("%+v", mails)
	}
	stranger := strings.Replace(link, strings.ToLower(addressOf(w.wallet).Hex()), "0x0900000000000000000000000000000000000000", 1)
	for _, wrong := range []string{first, link[:len(link)-1] + "g", strings.Replace(link, "channel=email", "channel=telegram", 1), stranger} {
		if got := w.do(0, http.MethodPost, wrong, confirmForm); !strings.Contains(got, "no longer good") {
			t.Fatalf("%s: %s", wrong, got)
		}
	}
	w.want(w.do(0, http.MethodPost, link, "List-Unsubscribe=One-Click"), "400 INVALID_INPUT")
	if got := w.do(0, http.MethodGet, link, ""); !strings.Contains(got, "Send alerts here?") || !strings.Contains(got, "a•••@example.com") {
		t.Fatal(got)
	}
	if got := w.shown(0); !strings.Contains(got, "not confirmed") {
		t.Fatal("a link was followed, and no button pressed: " + got)
	}
	for node := range 2 { // by a program that asks twice, too
		if got := w.do(node, http.MethodPost, link, confirmForm); !strings.Contains(got, "<h1>Confirmed</h1>") {
			t.Fatal(got)
		}
	}
	if got := w.shown(1); !strings.Contains(got, `"disabled":null,"confirmBy":null`) {
		t.Fatal(got)
	}
	w.due(2)
	if mails = w.letters(3); mails[2].subject != "Deal 2 expires in 1 hour" {
		t.Fatalf("%+v", mails[2])
	}

	// A person ends them by the link in the mail, in its text and in its HTML: it opens a page that asks, and changes
	// nothing by itself.
	ends := endLink.FindAllString(html.UnescapeString(mails[2].text), -1)
	if len(ends) != 3 || ends[0] != ends[1] || ends[1] != ends[2] { // the header has it too
		t.Fatalf("links to end the alerts: %q", ends)
	}
	if got := w.do(1, http.MethodGet, strings.TrimPrefix(ends[0], canaryLinks.Notify), ""); !strings.Contains(got, "End these alerts?") || !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}

	// Another one may be mistyped: alerts go on until it is confirmed. Naming the confirmed one takes that back.
	w.want(w.post(0, "email", "amn@example.com"), asked)
	if got := w.shown(1); !strings.Contains(got, `"disabled":null,"confirmBy":null,"awaited":{"address":"a•••@example.com","prefs":{"t48":true`) {
		t.Fatal(got)
	}
	mistyped := linkIn(t, w.letters(4)[3])
	w.due(4)
	if last := w.letters(5)[4]; last.to != "ann@example.com" || last.subject != "Deal 4 expires in 1 hour" {
		t.Fatalf("%+v", last)
	}
	if got := w.do(0, http.MethodGet, mistyped, ""); !strings.Contains(got, "Send alerts here?") {
		t.Fatal(got)
	}

	// What is confirmed stays so.
	w.want(w.post(0, "email", "ann@example.com"), `200 {"ok":true}`)
	if got := w.do(0, http.MethodPost, mistyped, confirmForm); !strings.Contains(got, "no longer good") {
		t.Fatal(got)
	}
	if got := w.shown(1); !strings.Contains(got, `"awaited":null`) {
		t.Fatal(got)
	}
	w.due(3)
	if mails = w.letters(6); mails[5].subject != "Deal 3 expires in 1 hour" {
		t.Fatalf("%+v", mails[5])
	}
	// The owner of the next one confirms it, and either ends both.
	w.want(w.post(0, "email", "cat@example.com"), asked)
	next := linkIn(t, w.letters(7)[6])
	if got := w.do(1, http.MethodPost, next, confirmForm); !strings.Contains(got, "<h1>Confirmed</h1>") || !strings.Contains(got, "c•••@example.com") {
		t.Fatal(got)
	}
	w.due(5)
	if last := w.letters(8)[7]; last.to != "cat@example.com" || last.subject != "Deal 5 expires in 1 hour" {
		t.Fatalf("%+v", last)
	}
	w.want(w.post(0, "email", "ann@example.com"), asked)
	link = linkIn(t, w.letters(9)[8])
	// It ends with the subscription, and so does the link.
	lower := strings.ToLower(addressOf(w.wallet).Hex())
	m := w.message(lower, "email", "ann@example.com", w.next())
	w.want(w.do(0, http.MethodDelete, "/notify/"+lower+"/email", deleteBody(m, sign(t, w.wallet, m))), `200 {"ok":true}`)
	if got := w.do(0, http.MethodPost, link, confirmForm); !strings.Contains(got, "no longer good") {
		t.Fatal(got)
	}
	w.want(w.post(0, "email", "dan@example.com"), asked)
	w.letters(10)

	// Neither the codes nor the addresses are in a log, a metric, an answer or a topic.
	places := map[string][]byte{"the log": w.logged.Bytes(), "the metrics": w.metrics.Gathered(t), "the answers": w.answers.Bytes()}
	for topic, all := range brokertest.Everything(t, w.cfg.Brokers) {
		places["topic "+topic] = all
	}
	secrets := map[string]string{"an address": "ann@example.com", "another": "bob@example.com"}
	for i, url := range []string{first, link} {
		secrets[fmt.Sprint("code ", i)] = url[strings.LastIndex(url, "=")+1:]
	}
	leaktest.Search(t, places, secrets, map[string][]byte{"wallet": addressOf(w.wallet).Bytes()})
}

// Nobody gets mail after mail by subscribing an address that is not theirs, with wallet after wallet and spelling after
// spelling. Nor does that keep the owner of the address out: whichever wallet a mail was sent for, the link in it
// confirms the owner's.
func TestConfirmBombing(t *testing.T) {
	w := newTown(t, "kfake")
	owner := w.wallet
	stranger := func() {
		key, err := crypto.GenerateKey()
		check(t, err)
		w.wallet = key
	}
	answer := func(sent bool) string { return fmt.Sprintf(`200 {"confirm":{"by":"link","sent":%v},"ok":true}`, sent) }
	for i := range 8 {
		stranger()
		w.want(w.post(i%2, "email", []string{"ann@example.com", "Ann@Example.com"}[i%2]), answer(i < 3))
	}
	last := w.letters(3)[2]
	// The last stranger is gone as soon as the mail was sent.
	w.want(w.post(0, "email", "eve@example.com"), answer(true))
	for i := range 4 { // tags are counted together, and apart
		stranger()
		w.want(w.post(i%2, "email", fmt.Sprintf("ann+%d@example.com", i)), answer(i < 3))
	}
	var tagged string
	for _, l := range w.letters(7) {
		if strings.Contains(l.to, "+") {
			tagged = linkIn(t, l)
		}
	}

	w.wallet = owner
	w.want(w.post(0, "email", "ann@example.com"), answer(false))
	link := linkIn(t, last)
	form := confirmForm + "&wallet=" + addressOf(owner).Hex()
	if got := w.do(0, http.MethodGet, link, ""); !strings.Contains(got, `<input name="wallet"`) {
		t.Fatal(got)
	}
	var other string
	for _, l := range w.letters(7) {
		if l.to == "eve@example.com" {
			other = linkIn(t, l)
		}
	}
	at := regexp.MustCompile(`at=\d+`)
	old := at.ReplaceAllString(link, fmt.Sprint("at=", time.Now().Unix()-notifier.MailSeconds-60))
	for _, wrong := range []string{other, tagged, old, link[:len(link)-1] + "g"} {
		if got := w.do(0, http.MethodPost, wrong, form); !strings.Contains(got, "no longer good") {
			t.Fatalf("%s: %s", wrong, got)
		}
	}
	w.want(w.do(0, http.MethodPost, link, confirmForm+"&wallet=0x1"), "400 INVALID_INPUT")
	if got := w.do(1, http.MethodPost, link, form); !strings.Contains(got, "<h1>Confirmed</h1>") || !strings.Contains(got, addressOf(owner).Hex()) {
		t.Fatal(got)
	}
	if got := w.shown(0); !strings.Contains(got, `"disabled":null`) {
		t.Fatal(got)
	}
	w.want(w.post(0, "email", "ann@example.com"), `200 {"ok":true}`) // it needs no mail any more
	w.letters(7)

	// Nor does a wallet write to address after address.
	stranger()
	for i := range 11 {
		want := answer(true)
		if i == 10 {
			want = "429 RATE_LIMITED"
		}
		w.want(w.post(0, "email", fmt.Sprintf("cleo%d@example.com", i)), want)
	}
	if got := w.shown(0); !strings.Contains(got, "c•••") {
		t.Fatal(got)
	}
	// A replayed request sends no mail.
	lower := strings.ToLower(addressOf(w.wallet).Hex())
	m := w.message(lower, "email", "cleo0@example.com", w.now-9)
	w.want(w.do(0, http.MethodPost, "/notify", postBody(lower, "email", "cleo0@example.com", allPrefs, m, sign(t, w.wallet, m))), "401 SIGNATURE_REUSED")
	w.letters(17)
}

// A wallet that takes its request back takes back no mail: the owner of the address has it.
func TestConfirmTakenBack(t *testing.T) {
	w := newTown(t, "kfake")
	for i := range 4 {
		key, err := crypto.GenerateKey()
		check(t, err)
		w.wallet = key
		w.want(w.post(0, "email", "ann@example.com"), fmt.Sprintf(`200 {"confirm":{"by":"link","sent":%v},"ok":true}`, i < 3))
		lower := strings.ToLower(addressOf(key).Hex())
		m := w.message(lower, "email", "ann@example.com", w.next())
		w.want(w.do(0, http.MethodDelete, "/notify/"+lower+"/email", deleteBody(m, sign(t, key, m))), `200 {"ok":true}`)
	}
	if got := w.do(0, http.MethodGet, linkIn(t, w.letters(3)[0]), ""); !strings.Contains(got, "no longer good") || !strings.Contains(got, `<input name="wallet"`) {
		t.Fatal(got)
	}
}

// started is the answer to the wallet that named a chat.
func (w *town) started(string) string {
	return fmt.Sprintf(`200 {"confirm":{"by":"start","code":"%s"},"ok":true}`, serving.StartCode(addressOf(w.wallet), w.keys.Code(addressOf(w.wallet), notifier.Telegram, w.now)))
}

// says is Telegram telling the service what a chat sent.
func (w *town) says(secret string, chat int64, text string) string {
	req := httptest.NewRequest(http.MethodPost, "/telegram", strings.NewReader(fmt.Sprintf(
		`{"update_id":1,"message":{"message_id":1,"date":1,"from":{"id":5,"is_bot":false},"chat":{"id":%d,"type":"private"},"text":%+q}}`, chat, text)))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	res := httptest.NewRecorder()
	w.services[1].ServeHTTP(res, req)
	return fmt.Sprintf("%d %s", res.Code, res.Body)
}

// A chat confirms itself by sending the code to the bot, and no other chat can, nor another sender than Telegram.
func TestConfirmByStart(t *testing.T) {
	w := newTown(t, "kfake")
	wallet := addressOf(w.wallet)
	if w.hook[0] != "https://notify.example/telegram" || w.hook[1] == "" {
		t.Fatalf("Telegram was told %q", w.hook)
	}
	if got := w.post(0, "telegram", "1234567"); got != w.started("1234567") {
		t.Fatal(got)
	}
	code := serving.StartCode(wallet, w.keys.Code(wallet, notifier.Telegram, w.now))
	if len(code) > 64 {
		t.Fatalf("Telegram takes 64 characters, not %d", len(code))
	}
	w.due(1)
	if got := w.says("no secret", 1234567, "/start "+code); !strings.Contains(got, "401") {
		t.Fatal(got)
	}
	for _, wrong := range []struct {
		chat int64
		text string
	}{{1234568, "/start " + code}, {1234567, "/start " + serving.StartCode(common.Address{9}, w.keys.Code(common.Address{9}, notifier.Telegram, w.now))}} {
		if got := w.says(w.hook[1], wrong.chat, wrong.text); !strings.Contains(got, "not for this chat") || !strings.HasPrefix(got, "200") {
			t.Fatal(got)
		}
	}
	// What is not answered Telegram sends again, and what others send waits for it.
	for _, other := range []string{"hello", "/start", "/start x", code, strings.Repeat("ж", 4096)} {
		w.want(w.says(w.hook[1], 1234567, other), "200 {}")
	}
	if got := w.shown(0); !strings.Contains(got, "not confirmed") {
		t.Fatal(got)
	}
	if got := w.says(w.hook[1], 1234567, "/start "+code); !strings.Contains(got, "come to this chat now") || !strings.Contains(got, `"chat_id":1234567`) {
		t.Fatal(got)
	}
	if got := w.shown(0); !strings.Contains(got, `"disabled":null`) {
		t.Fatal(got)
	}
	// A group's clients name the bot.
	if got := w.post(0, "telegram", "-1001234567"); got != w.started("-1001234567") {
		t.Fatal(got)
	}
	code = serving.StartCode(wallet, w.keys.Code(wallet, notifier.Telegram, w.now))
	for _, other := range []string{"/start@ " + code, "/starting@lien_bot " + code, "/start@lien_bot"} {
		w.want(w.says(w.hook[1], -1001234567, other), "200 {}")
	}
	if got := w.says(w.hook[1], -1001234567, "/start@lien_bot "+code); !strings.Contains(got, "come to this chat now") {
		t.Fatal(got)
	}
	if got := w.post(0, "telegram", "1234567"); got != w.started("1234567") {
		t.Fatal(got)
	}
	code = serving.StartCode(wallet, w.keys.Code(wallet, notifier.Telegram, w.now))
	if got := w.says(w.hook[1], 1234567, "/start "+code); !strings.Contains(got, "come to this chat now") {
		t.Fatal(got)
	}
	w.due(2)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.chats) != 1 || w.chats[0] != "1234567" {
		t.Fatalf("the bot wrote to %v", w.chats)
	}
}
