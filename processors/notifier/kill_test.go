package notifier_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"
	"github.com/emersion/go-smtp"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/facts"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// nodeEnv has what a process of TestKills is to be.
const nodeEnv = "LIENSTREAM_NODE_OF_TEST"

const sealingKey = "1:" + "1111111111111111111111111111111111111111111111111111111111111111"

// start is one start of a node: receivers see its number.
type start struct {
	Number        int
	Brokers       []string
	Instance, Dir string
	SMTP          int
	Hold          time.Duration
	Bot           string
	VAPID, Roots  string
}

func TestMain(m *testing.M) {
	text := os.Getenv(nodeEnv)
	if text == "" {
		m.Run()
		return
	}
	var s start
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	go func() { // it does not outlive the test
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		panic(err)
	}
}

// run runs the facts, the notifier and its sender, until ctx is done.
func (s *start) run(ctx context.Context) error {
	logger, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	cfg := brokertest.Config(s.Brokers, "n")
	cat := topics.Catalogue{Prefix: "n", ChainID: 1, Partitions: 4}
	conf := engine.DefaultConfig()
	conf.Kafka, conf.Catalogue, conf.Instance, conf.Dir, conf.Logger = cfg, cat, s.Instance, s.Dir, logger
	conf.SessionTimeout, conf.Memory.Blocks = 6*time.Second, 8<<20
	source, node, err := newNodes(conf, atTests, facts.Safe, 0)
	if err != nil {
		return err
	}
	keys, err := notifier.ParseKeys(sealingKey)
	if err != nil {
		return err
	}
	producer, err := kafka.NewProducer(cfg, "sender", kafka.ProducerOptions{})
	if err != nil {
		return err
	}
	defer producer.Close()
	email, err := sender.NewEmail(sender.EmailConfig{Host: "127.0.0.1", Port: s.SMTP, From: fmt.Sprintf("start-%d@lien.example", s.Number), Plain: true}, keys)
	if err != nil {
		return err
	}
	telegram, err := sender.NewTelegram(sender.TelegramConfig{Token: "1:token", URL: fmt.Sprintf("%s/start-%d", s.Bot, s.Number)}, keys)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.Roots))
	push, err := sender.NewPush(sender.PushConfig{
		Private: s.VAPID, Contact: fmt.Sprintf("start-%d@lien.example", s.Number), AllowLoopback: true, TLS: &tls.Config{RootCAs: roots},
	})
	if err != nil {
		return err
	}
	c := sender.DefaultConfig()
	c.Catalogue, c.Look, c.FirstWait, c.Timeout, c.Hold = cat, 20*time.Millisecond, 100*time.Millisecond, attemptTimeout, s.Hold
	lines := map[notifier.Channel]*sender.Line{}
	for name, channel := range map[notifier.Channel]sender.Channel{notifier.Email: email, notifier.Telegram: telegram, notifier.Push: push} {
		lines[name] = &sender.Line{Channel: channel, Rate: rate.NewLimiter(100, 10)}
	}
	send, err := sender.New(c, node, producer, keys, lines, logger, prometheus.NewRegistry())
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range []func(context.Context) error{source.Run, node.Run, send.Run} {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

// process is a start that runs.
type process struct {
	*start
	cmd    *exec.Cmd
	mu     sync.Mutex
	killed time.Time // zero: it was not
	dead   chan struct{}
}

// kill ends the process with SIGKILL, and returns once it is dead.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.alive() {
		_ = p.cmd.Process.Kill()
		<-p.dead
		p.killed = time.Now()
	}
}

// killedAt is when the process was killed.
func (p *process) killedAt() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed, !p.killed.IsZero()
}

// stop asks the process to end.
func (p *process) stop() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

// delivery is an alert that came to a receiver.
type delivery struct {
	at   time.Time
	from int // start
}

// trigger ends the sender of a message to come.
type trigger struct {
	in     int // so many messages from now
	how    ending
	within time.Duration // of the message, for killedAfter
}

// ending is how a process ends.
type ending int

const (
	killedAnyTime ending = iota
	killedBefore         // it is answered
	killedAfter
	stopped // which is no reason to send anything again
)

// endings are as likely as they are often here.
var endings = []ending{killedAnyTime, killedAnyTime, killedBefore, killedBefore, killedAfter, killedAfter, stopped}

// town is the environment of the processes: the topics, the receivers, and the wallets.
type town struct {
	*chain
	o       *oracle
	rng     *rand.Rand
	base    start
	logs    string
	names   map[string]string // by the row of an alert, its ID
	blocks  []standing
	kind    string    // of the broker
	freed   time.Time // that it was asked for stuck groups
	deals   int64
	epochs  uint32
	ends    uint64            // of the last epoch
	budgets map[string]string // by the ID of an alert that news of a budget may be, its row
	wallets []common.Address

	mu      sync.Mutex
	starts  []*process
	came    map[string][]delivery // by the alert's ID
	texts   map[string]string     // mails, by the alert's ID
	away    bool                  // receivers refuse for now
	refused int
	next    *trigger
	killed  int
	odd     map[string]bool // alerts that came again for no reason
	ended   map[ending]int
}

func newTown(t testing.TB, kind string, rng *rand.Rand) *town {
	return newTownOn(newTopics(t, kind, 1), rng)
}

func newTownOn(c *chain, rng *rand.Rand) *town {
	t := c.t
	w := &town{
		chain: c, rng: rng, logs: t.TempDir(), came: map[string][]delivery{}, odd: map[string]bool{}, names: map[string]string{}, budgets: map[string]string{}, texts: map[string]string{}, ended: map[ending]int{},
		o:       &oracle{told: map[string]uint64{}, news: map[string]bool{}, alerts: map[common.Hash]uint64{}, again: map[common.Hash]bool{}},
		wallets: []common.Address{{1}, {2}, {3}, {4}},
	}
	w.base.Brokers, w.base.Hold = w.cfg.Brokers, 500*time.Millisecond // no block follows a kill
	mails := smtp.NewServer(w)
	quiet := log.New(io.Discard, "", 0) // a killed process hangs up
	mails.ErrorLog = quiet
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	go func() { _ = mails.Serve(listener) }()
	t.Cleanup(func() { _ = mails.Close() })
	w.base.SMTP = listener.Addr().(*net.TCPAddr).Port
	bot := httptest.NewServer(http.HandlerFunc(w.bot))
	t.Cleanup(bot.Close)
	w.base.Bot = bot.URL
	push := httptest.NewUnstartedServer(http.HandlerFunc(w.push))
	push.Config.ErrorLog = quiet
	push.StartTLS()
	t.Cleanup(push.Close)
	w.base.Roots = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: push.Certificate().Raw}))
	w.base.VAPID, _, err = webpush.GenerateVAPIDKeys()
	check(t, err)
	t.Cleanup(func() {
		for _, p := range w.processes() {
			p.kill()
		}
		if t.Failed() {
			w.explain()
		}
	})
	w.subscribe(push.URL)
	return w
}

// subscribe has every wallet told of everything, on all channels.
func (w *town) subscribe(endpoint string) {
	keys, err := notifier.ParseKeys(sealingKey)
	check(w.t, err)
	producer, err := kafka.NewProducer(w.cfg, "users", kafka.ProducerOptions{})
	check(w.t, err)
	defer producer.Close()
	every := map[string]bool{}
	for _, k := range notifier.Kinds {
		every[k.String()] = true
	}
	for i, wallet := range w.wallets {
		for channel, address := range map[notifier.Channel]string{
			notifier.Email: fmt.Sprintf("w%d@example.com", i), notifier.Telegram: fmt.Sprint(100 + i),
			notifier.Push: fmt.Sprintf(`{"endpoint":"%s/w%d","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}`, endpoint, i),
		} {
			sealed, err := keys.Seal(wallet, channel, address)
			check(w.t, err)
			cmd := notifier.Command{Subscribe: &notifier.Subscribe{Wallet: wallet, Channel: channel, Sealed: sealed, Mask: "m", Prefs: 0x7f, Unix: 1}}
			rec, err := cmd.Record(w.cat, wallet)
			check(w.t, err)
			_, err = producer.Send(w.t.Context(), rec)
			check(w.t, err)
			w.o.asked = append(w.o.asked, asked{wallet, channel.String(), every})
		}
	}
}

func (w *town) processes() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.starts)
}

// start starts an instance again.
func (w *town) start(instance string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &process{start: new(start), dead: make(chan struct{})}
	*p.start = w.base
	p.Number, p.Instance, p.Dir = len(w.starts), instance, filepath.Join(w.logs, instance)
	text, err := json.Marshal(p.start)
	check(w.t, err)
	self, err := os.Executable()
	check(w.t, err)
	p.cmd = exec.Command(self)
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+string(text))
	output, err := os.Create(filepath.Join(w.logs, fmt.Sprintf("start-%d.log", p.Number)))
	check(w.t, err)
	defer func() { _ = output.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = output, output
	_, err = p.cmd.StdinPipe()
	check(w.t, err)
	check(w.t, p.cmd.Start())
	w.starts = append(w.starts, p)
	go func() {
		_ = p.cmd.Wait()
		close(p.dead)
	}()
}

// receive takes a message of a start; it returns once that is to be answered.
func (w *town) receive(id, from string) {
	number, err := strconv.Atoi(from)
	if err != nil || len(id) != 32 {
		w.t.Errorf("a message %q of %q", id, from)
		return
	}
	w.mu.Lock()
	p := w.starts[number]
	w.came[id] = append(w.came[id], delivery{time.Now(), number})
	var kill *trigger
	if w.next != nil {
		if w.next.in--; w.next.in <= 0 {
			kill, w.next = w.next, nil
		}
	}
	w.mu.Unlock()
	switch {
	case kill == nil:
	case kill.how == stopped:
		p.stop()
	case kill.how == killedBefore:
		p.kill()
	default:
		time.AfterFunc(kill.within, p.kill)
	}
}

// refuses reports whether receivers take nothing for now.
func (w *town) refuses() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		w.refused++
	}
	return w.away
}

var startIn = regexp.MustCompile(`start-(\d+)`)

func startOf(text string) string {
	if found := startIn.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// A session of SMTP.
type letters struct {
	w    *town
	from string
}

// NewSession implements smtp.Backend.
func (w *town) NewSession(*smtp.Conn) (smtp.Session, error) { return &letters{w: w}, nil }

func (l *letters) Mail(from string, _ *smtp.MailOptions) error {
	l.from = startOf(from)
	return nil
}
func (l *letters) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (l *letters) Reset()                               {}
func (l *letters) Logout() error                        { return nil }

func (l *letters) Data(body io.Reader) error {
	m, err := mail.ReadMessage(body)
	if err != nil {
		return err
	}
	id, _, _ := strings.Cut(strings.Trim(m.Header.Get("Message-Id"), "<>"), "@")
	if l.w.refuses() {
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"}
	}
	text, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		return err
	}
	l.w.mu.Lock()
	l.w.texts[id] = m.Header.Get("Subject") + "\n" + string(text)
	l.w.mu.Unlock()
	l.w.receive(id, l.from)
	return nil
}

func (w *town) bot(rw http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		return // half a message of a killed process
	}
	if w.refuses() {
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	text := r.FormValue("text")
	w.receive(text[strings.LastIndexByte(text, ' ')+1:], startOf(r.URL.Path))
	_, _ = io.WriteString(rw, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
}

func (w *town) push(rw http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	if w.refuses() {
		rw.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	parts := strings.Split(r.Header.Get("Authorization"), ".")
	claims, err := base64.RawURLEncoding.DecodeString(parts[min(1, len(parts)-1)])
	if err != nil {
		w.t.Error(err)
	}
	w.receive(r.Header.Get("Topic"), startOf(string(claims)))
	rw.WriteHeader(http.StatusCreated)
}

// passes lets time pass by a block with new deals, and a second one by which it is safe. It returns what is due by
// then.
func (w *town) passes() (due []string) {
	w.t.Helper()
	later := 3*hour + w.rng.Uint64N(9*hour)
	b := standing{time: w.head.Timestamp + later}
	var logs []*topics.Log
	for range 1 + w.rng.IntN(3) {
		w.deals++
		lender := w.rng.IntN(len(w.wallets))
		d := &deal{
			id: w.deals, borrower: w.wallets[(lender+1)%len(w.wallets)], lender: w.wallets[lender],
			fundedAt: b.time, expiry: b.time + hour + w.rng.Uint64N(60*hour),
		}
		d.graceEnd = d.expiry + 24*hour
		logs = append(logs, w.listed(d), w.funded(d))
		b.what = append(b.what, happening{funded: d})
		w.name(d)
	}
	switch left := w.ends - min(b.time, w.ends); {
	case left < 24*hour || w.rng.IntN(8) == 0: // what happens in an epoch is told before its end
		w.epochs++
		w.ends = b.time + 7*24*hour
		logs = append(logs, w.log("EpochOpened", map[string]any{
			"n": uint64(w.epochs), "startsAt": b.time, "endsAt": w.ends, "dealBudget7": uint64(1000), "dealBudget21": uint64(1000),
		}))
		b.what = append(b.what, happening{opened: w.epochs})
		w.nameNews(notifier.EpochOpen, w.epochs, 0, b.time)
	case w.rng.IntN(2) == 0:
		log, e := w.reserves(w.rng, w.blocks, w.epochs)
		logs = append(logs, log)
		b.what = append(b.what, happening{budget: e})
		w.nameNews(notifier.Budget90, e.epoch, e.term, b.time)
		w.nameNews(notifier.Budget100, e.epoch, e.term, b.time)
	}
	w.block(later, logs...)
	w.block(0) // too soon for a tick of its own
	w.blocks = append(w.blocks, b)
	known := len(w.o.alerts)
	before := map[common.Hash]bool{}
	for id := range w.o.alerts {
		before[id] = true
	}
	w.o.tick(w.t, w.blocks, b.time)
	for id := range w.o.alerts {
		if name := hex.EncodeToString(id[:16]); !before[id] {
			due = append(due, name)
			if row := w.budgets[name]; row != "" {
				w.names[row] = name // of all that it could have been
			}
		}
	}
	if len(due) != len(w.o.alerts)-known {
		w.t.Fatal("the model forgot alerts")
	}
	return due
}

// name notes by which rows the outbox may know what is told of a deal.
func (w *town) name(d *deal) {
	for stage := notifier.Before48; stage <= notifier.AtGraceEnd; stage++ {
		for _, wallet := range []common.Address{d.borrower, d.lender} {
			for _, channel := range notifier.Channels {
				id := model(d, wallet, channel.String(), stage.String())
				at := notifier.Address{Wallet: wallet, Channel: channel, Subject: uint256.NewInt(uint64(d.id)).Bytes32(), Stage: stage}
				w.names[string(at.Row())] = hex.EncodeToString(id[:16])
			}
		}
	}
}

// nameNews notes by which rows the outbox may know news. Those of a budget are told once, and perhaps of a later block
// than this.
func (w *town) nameNews(stage notifier.Stage, epoch, term uint32, due uint64) {
	var subject common.Hash
	subject[0], subject[27] = 0xff, byte(stage)
	binary.BigEndian.PutUint32(subject[23:], epoch)
	binary.BigEndian.PutUint32(subject[28:], term)
	for _, wallet := range w.wallets {
		for _, channel := range notifier.Channels {
			alert := topics.Alert{Wallet: wallet, Channel: channel.String(), Kind: stage.String(), Epoch: uint64(epoch), Term: uint64(term), Due: due}
			id := alert.ID()
			name, row := hex.EncodeToString(id[:16]), string(notifier.Address{Wallet: wallet, Channel: channel, Subject: subject, Stage: stage}.Row())
			if w.names[row] == "" {
				w.names[row] = name
			}
			w.budgets[name] = row
		}
	}
}

// stuckAfter is longer than a rebalance takes, of members that are given up after half of that.
const stuckAfter = 30 * time.Second

// free has groups go on that the embedded broker has stuck, where something is waited for since began.
func (w *town) free(began time.Time) {
	if w.kind != "kfake" || time.Since(began) < stuckAfter || time.Since(w.freed) < stuckAfter {
		return
	}
	w.freed = time.Now()
	stuck, err := brokertest.Regroup(w.t.Context(), w.cfg.Brokers, new(net.Dialer).DialContext)
	w.t.Logf("%s since %s: %d groups were stuck, %v", time.Since(began), began.Format(time.StampMilli), stuck, err)
}

// delivered waits until each of some alerts has come.
func (w *town) delivered(due []string) {
	w.t.Helper()
	began := time.Now()
	polltest.Within(w.t, 2*time.Minute, func() error {
		w.free(began)
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, id := range due {
			if len(w.came[id]) == 0 {
				return fmt.Errorf("alert %s of %d has not come", id, len(due))
			}
		}
		return nil
	})
}

// explain logs what became of the alerts that have not come, or came again for no reason, and the ends of the
// processes' logs.
func (w *town) explain() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	w.mu.Lock()
	missing := maps.Clone(w.odd)
	for id := range w.o.alerts {
		if name := hex.EncodeToString(id[:16]); len(w.came[name]) == 0 {
			missing[name] = true
		}
	}
	w.mu.Unlock()
	published, found := w.cat.Find(topics.KindEvent, topics.FamilyAlert)
	for p := range w.cat.Partitions {
		err := kafka.ReadBack(ctx, w.cfg, w.cat.Commands(topics.AppNotifier), p, 0, func(r *kafka.Record) bool {
			var cmd notifier.Command
			var row []byte
			if json.Unmarshal(r.Value[1:len(r.Value)-1], &cmd) != nil {
				return true
			} else if cmd.Claim != nil {
				row = cmd.Claim.Row
			} else if cmd.Report != nil {
				row = cmd.Report.Row
			}
			if id := w.names[string(row)]; missing[id] {
				w.t.Logf("%s %s: %s", r.Timestamp.Format(time.StampMilli), id, r.Value)
			}
			return true
		})
		if found && err == nil {
			err = kafka.ReadBack(ctx, w.cfg, published.Name(), p, 0, func(r *kafka.Record) bool {
				if id := hex.EncodeToString(r.Key[:min(16, len(r.Key))]); missing[id] {
					w.t.Logf("%s %s: published", r.Timestamp.Format(time.StampMilli), id)
				}
				return true
			})
		}
		if err != nil {
			w.t.Log(err)
		}
	}
	for _, s := range w.processes() {
		at, _ := s.killedAt()
		text, _ := os.ReadFile(filepath.Join(w.logs, fmt.Sprintf("start-%d.log", s.Number)))
		w.t.Logf("start %d (%s), killed at %s: %s", s.Number, s.Instance, at.Format(time.StampMilli), text[max(0, len(text)-4096):])
	}
}

// reports are when each alert was reported as sent, by its ID, and as not answered in all the time that an attempt has:
// on a busy machine that happens, and the same process sends the alert again.
func (w *town) reports() (sent, unanswered map[string][]time.Time) {
	w.t.Helper()
	sent, unanswered = map[string][]time.Time{}, map[string][]time.Time{}
	claims := map[string]time.Time{}
	for p := range w.cat.Partitions {
		check(w.t, kafka.ReadBack(w.t.Context(), w.cfg, w.cat.Commands(topics.AppNotifier), p, 0, func(r *kafka.Record) bool {
			if !bytes.Contains(r.Value, []byte(`"report"`)) && !bytes.Contains(r.Value, []byte(`"claim"`)) {
				return true
			}
			var cmd notifier.Command
			check(w.t, json.Unmarshal(r.Value[1:len(r.Value)-1], &cmd))
			if cmd.Claim != nil {
				claims[cmd.Claim.By] = r.Timestamp
				return true
			}
			took := r.Timestamp.Sub(claims[cmd.Report.By]) // which has begun a little before its claim was written
			if id := w.names[string(cmd.Report.Row)]; id == "" {
				w.t.Errorf("a report of no alert of the model: %+v", cmd.Report)
			} else if cmd.Report.Result == notifier.Sent {
				sent[id] = append(sent[id], r.Timestamp)
			} else if cmd.Report.Reason == "the server did not respond in time" && took > attemptTimeout*2/3 {
				unanswered[id] = append(unanswered[id], r.Timestamp)
			}
			return true
		}))
	}
	return sent, unanswered
}

// givenUp reports whether an attempt got no answer in time, as its sender said before a delivery. It has the alert come
// once more, and only once. When the one before came says nothing: on a busy machine a receiver takes what was sent a
// second after its sender has hung up.
func givenUp(unanswered *[]time.Time, d delivery) bool {
	i := slices.IndexFunc(*unanswered, func(at time.Time) bool { return at.Before(d.at) })
	if i >= 0 {
		*unanswered = slices.Delete(*unanswered, i, i+1)
	}
	return i >= 0
}

// towns are the brokers of TestKills: so many towns at once, since they mostly wait.
var towns = []string{"apache", "kfake", "kfake", "kfake", "kfake", "kfake", "kfake", "kfake"}

// TestKills: through 50 kills of processor and sender at random points, in whichever town, each alert of the model
// comes at least once, none that is not the model's, and none again but where a kill came between its sending and the
// record of that.
func TestKills(t *testing.T) {
	t.Parallel()
	kills, seed := 50, uint64(time.Now().UnixNano())
	if n, err := strconv.Atoi(os.Getenv("LIENSTREAM_KILLS")); err == nil {
		kills = n
	}
	if n, err := strconv.ParseUint(os.Getenv("LIENSTREAM_SEED"), 10, 64); err == nil {
		seed = n
	}
	var all sync.WaitGroup
	defer all.Wait()
	var left atomic.Int64
	left.Store(int64(kills))
	t.Logf("seed %d, %d kills", seed, kills)
	up := make(chan struct{}) // the first town, whose broker takes the longest and all that the cores have
	opened := sync.OnceFunc(func() { close(up) })
	for i, kind := range towns {
		all.Go(func() { // parallel tests would wait for a core each
			if i > 0 {
				<-up
			}
			defer opened()
			t.Run(fmt.Sprint(kind, " ", i), func(t *testing.T) {
				w := newTown(t, kind, rand.New(rand.NewPCG(seed, uint64(i))))
				w.kind = kind
				opened()
				testKills(w, &left)
			})
		})
	}
}

// attemptTimeout is shorter than in production: as long others wait before they take over what a node that was killed
// had claimed.
const attemptTimeout = 3 * time.Second

// testKills kills for as long as there are kills left for all towns.
func testKills(w *town, left *atomic.Int64) {
	w.start("a")
	w.start("b")
	for left.Load() > 0 {
		before := w.killed
		w.round()
		left.Add(int64(before - w.killed))
	}
	// A run without a kill: each once.
	for _, instance := range []string{"a", "b"} {
		w.revive(instance)
	}
	var calm []string
	for range 3 {
		due := w.passes()
		w.delivered(due)
		calm = append(calm, due...)
	}
	w.settled()
	w.judge(calm)
}

// round lets time pass, and kills a process meanwhile, perhaps too late.
func (w *town) round() {
	w.t.Helper()
	due := w.passes()
	before := w.dead()
	how := endings[w.rng.IntN(len(endings))]
	if len(due) == 0 {
		how = killedAnyTime
	}
	w.ended[how]++
	switch how {
	case killedAnyTime:
		all := slices.DeleteFunc(w.processes(), func(p *process) bool { return !p.alive() })
		<-time.After(time.Duration(w.rng.Int64N(int64(4 * time.Second))))
		all[w.rng.IntN(len(all))].kill()
	default: // while it sends
		w.mu.Lock()
		w.next = &trigger{in: 1 + w.rng.IntN(len(due)), how: how, within: time.Duration(w.rng.Int64N(int64(10 * time.Millisecond)))}
		w.mu.Unlock()
		began := time.Now()
		polltest.Within(w.t, 2*time.Minute, func() error {
			w.free(began)
			if w.dead() == before {
				return fmt.Errorf("nobody has ended: %d are due", len(due))
			}
			return nil
		})
	}
	if how != stopped {
		w.killed++
	}
	waits := w.rng.IntN(3) == 0 && w.dead()-before == 1 // for the other to go on alone
	if waits {
		w.delivered(due)
	}
	for _, instance := range []string{"a", "b"} {
		w.revive(instance)
	}
	w.delivered(due)
}

// dead counts the processes that have ended.
func (w *town) dead() (n int) {
	for _, p := range w.processes() {
		if !p.alive() {
			n++
		}
	}
	return n
}

// revive starts an instance, unless it runs.
func (w *town) revive(instance string) {
	if !slices.ContainsFunc(w.processes(), func(p *process) bool { return p.Instance == instance && p.alive() }) {
		w.start(instance)
	}
}

// settled waits until what came was reported.
func (w *town) settled() {
	w.t.Helper()
	polltest.Within(w.t, 2*time.Minute, func() error {
		reports, _ := w.reports()
		w.mu.Lock()
		defer w.mu.Unlock()
		for id, all := range w.came {
			if len(reports[id]) == 0 && w.starts[all[len(all)-1].from].alive() {
				return fmt.Errorf("alert %s is not reported", id)
			}
		}
		return nil
	})
}

func (w *town) judge(calm []string) {
	reports, unanswered := w.reports()
	w.mu.Lock()
	defer w.mu.Unlock()
	again := 0
	for id := range w.o.alerts {
		if len(w.came[hex.EncodeToString(id[:16])]) == 0 {
			w.t.Errorf("alert %x is lost", id[:16])
		}
	}
	known := map[string]bool{}
	for id := range w.o.alerts {
		known[hex.EncodeToString(id[:16])] = true
	}
	for id, all := range w.came {
		if !known[id] {
			w.t.Errorf("alert %s is none of the model's", id)
		}
		late := slices.SortedFunc(slices.Values(unanswered[id]), time.Time.Compare)
		for i, d := range all[1:] {
			again++
			if givenUp(&late, d) {
				continue
			}
			last, another := w.starts[all[i].from], d.at.Sub(all[i].at) >= attemptTimeout // node may have taken over
			if at, killed := last.killedAt(); !another && (!killed || at.After(d.at)) {
				w.odd[id] = true
				w.t.Errorf("alert %s came from %d (%s), which was not killed by then, and %s later from %d (%s); reported at %v", id, last.Number, last.Instance, d.at.Sub(all[i].at), d.from, w.starts[d.from].Instance, reports[id])
			}
			for _, at := range reports[id] {
				if at.Before(d.at.Add(-10 * time.Millisecond)) {
					w.odd[id] = true
					w.t.Errorf("alert %s came again %s after it was reported, from %d (%s)", id, d.at.Sub(at), d.from, w.starts[d.from].Instance)
				}
			}
		}
	}
	w.t.Logf("%d alerts, %d of them without a kill; %d came again, after %d kills (at any time, before an answer, after it) and %d stops: %v", len(w.came), len(calm), again, w.killed, w.ended[stopped], w.ended)
}
