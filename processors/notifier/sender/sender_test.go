package sender_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/emersion/go-smtp"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// receiver is a mail server that keeps what it takes, and refuses what it is told to.
type receiver struct {
	mu     sync.Mutex
	taken  []string
	refuse map[string]*smtp.SMTPError // by receiver, once each
	gone   string
}

type session struct {
	r  *receiver
	to string
}

func (r *receiver) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{r: r}, nil }

func (s *session) Mail(string, *smtp.MailOptions) error { return nil }
func (s *session) Reset()                               {}
func (s *session) Logout() error                        { return nil }

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if err := s.r.refuse[to]; err != nil {
		delete(s.r.refuse, to)
		return err
	}
	if to == s.r.gone {
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user " + to}
	}
	return nil
}

func (s *session) Data(body io.Reader) error {
	raw, err := io.ReadAll(body)
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.taken = append(s.r.taken, string(raw))
	return err
}

func (r *receiver) mails() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.taken...)
}

// An alert reaches a real mail server once, in spite of a refusal that passes; an address that is gone is told no more.
func TestEmail(t *testing.T) {
	r := &receiver{refuse: map[string]*smtp.SMTPError{
		"ann@example.com": {Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"},
	}, gone: "bob@example.com"}
	server := smtp.NewServer(r)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	check(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })

	cfg := kafka.Config{Brokers: brokertest.Start(t, "kfake"), Prefix: "n"}
	cat := topics.Catalogue{Prefix: "n", ChainID: 1, Partitions: 1}
	admin, err := kafka.NewAdmin(cfg)
	check(t, err)
	defer admin.Close()
	check(t, admin.Apply(t.Context(), cat.Topics()))
	node, err := engine.NewCommands(engine.Config{
		Kafka: cfg, Catalogue: cat, AppName: topics.AppNotifier, Instance: "a", Dir: "/a", FS: vfs.NewMem(),
		SessionTimeout: 6 * time.Second, Registerer: prometheus.NewRegistry(), Logger: zap.NewNop(),
	}, notifier.New(1, prometheus.NewRegistry()))
	check(t, err)
	producer, err := kafka.NewProducer(cfg, "p", kafka.ProducerOptions{})
	check(t, err)
	t.Cleanup(producer.Close)
	router, err := read.NewRouter(read.Config{Application: topics.AppNotifier, Partitions: 1, Local: node})
	check(t, err)
	client := notifier.NewClient(cat, producer, router)
	keys, err := notifier.ParseKeys("1:" + strings.Repeat("11", 32))
	check(t, err)
	email, err := sender.NewEmail(sender.EmailConfig{
		Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, From: "alerts@lien.example", Plain: true,
		Links: sender.Links{App: "https://app.example", Notify: "https://notify.example"},
	}, keys)
	check(t, err)
	conf := sender.DefaultConfig()
	conf.Catalogue, conf.Look, conf.FirstWait = cat, 10*time.Millisecond, 20*time.Millisecond
	out, err := sender.New(conf, node, producer, keys, map[notifier.Channel]*sender.Line{
		notifier.Email: {Channel: email, Rate: rate.NewLimiter(rate.Inf, 1)},
	}, prometheus.NewRegistry(), zap.NewNop())
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{node.Run, out.Run} {
		wg.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })

	ann, bob := common.Address{1}, common.Address{2}
	for wallet, address := range map[common.Address]string{ann: "ann@example.com", bob: "bob@example.com"} {
		sealed, err := keys.Seal(wallet, notifier.Email, address)
		check(t, err)
		eventually(t, "the subscription is taken", func() bool {
			outcome, err := client.Subscribe(t.Context(), &notifier.Subscribe{
				ID: notifier.ID{wallet[0]}, Wallet: wallet, Channel: notifier.Email, Sealed: sealed, Mask: "m", Prefs: 0x7f, Unix: 1,
			})
			return err == nil && outcome == notifier.Accepted
		})
	}
	const genesis, hour = 2_000_000_000, 3600
	send := func(wallet common.Address, cmd notifier.Command) {
		t.Helper()
		rec, err := cmd.Record(cat, wallet)
		check(t, err)
		_, err = producer.Send(t.Context(), rec)
		check(t, err)
	}
	deal := notifier.Deal{ID: "7", Borrower: ann, Lender: bob, Cap: "1234500000", FundedAt: genesis, Expiry: genesis + 7*hour, GraceEnd: genesis + 31*hour, Open: true}
	send(ann, notifier.Command{Fact: &notifier.Fact{Wallet: ann, Deal: deal}})
	send(bob, notifier.Command{Fact: &notifier.Fact{Wallet: bob, Deal: deal}})
	send(ann, notifier.Command{Tick: &notifier.Tick{Block: 1, Time: genesis + hour}})

	eventually(t, "all that is due was tried to its end", func() bool {
		h, err := client.Health(t.Context())
		return err == nil && h.Pending == 0 && h.SentLastHour == 1
	})
	mails := r.mails()
	if len(mails) != 1 {
		t.Fatalf("%d mails, want 1", len(mails))
	}
	got, err := mail.ReadMessage(strings.NewReader(mails[0]))
	check(t, err)
	alert := topics.Alert{Wallet: ann, Channel: "email", Kind: "t6", DealID: "7", Due: genesis + hour}
	id := alert.ID()
	for name, want := range map[string]string{
		"To":                    "<ann@example.com>",
		"Subject":               "Deal 7 expires in 6 hours",
		"Message-Id":            fmt.Sprintf("<%x@lien.example>", id[:16]),
		"List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
	} {
		if is := got.Header.Get(name); is != want {
			t.Errorf("%s: %q, want %q", name, is, want)
		}
	}
	if link := got.Header.Get("List-Unsubscribe"); !strings.Contains(strings.ReplaceAll(link, " ", ""), keys.Link(ann, notifier.Email, created(t, client, ann))) {
		t.Errorf("List-Unsubscribe: %q", link)
	}
	body, err := io.ReadAll(got.Body)
	check(t, err)
	if !bytes.Contains(body, []byte("Repay 1234.5 USDG before the grace period ends")) || !bytes.Contains(body, []byte("https://app.example/deals/7")) {
		t.Errorf("body: %s", body)
	}
	subs, err := client.Subscriptions(t.Context(), bob)
	check(t, err)
	if len(subs) != 1 || subs[0].Disabled != "the mail server answered 550" {
		t.Errorf("the address that is gone: %+v", subs)
	}
}

func created(t *testing.T, client *notifier.Client, wallet common.Address) int64 {
	t.Helper()
	subs, err := client.Subscriptions(t.Context(), wallet)
	check(t, err)
	return subs[0].CreatedAt
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(30 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: did not happen", what)
		}
	}
}
