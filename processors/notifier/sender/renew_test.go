package sender_test

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// late is a mail server that says what it has done with a mail only once it is told to: mails to some addresses, or
// all.
type late struct {
	*receiver
	to   string // how those addresses begin
	says chan struct{}
	err  error // what it says
}

type lateSession struct {
	session
	late *late
}

func (l *late) NewSession(*smtp.Conn) (smtp.Session, error) {
	return &lateSession{session{r: l.receiver}, l}, nil
}

func (s *lateSession) Data(body io.Reader) error {
	if err := s.session.Data(body); err != nil || !strings.HasPrefix(s.to, s.late.to) {
		return err
	}
	<-s.late.says
	return s.late.err
}

// start returns what makes the channel of a house whose mail server this is.
func (l *late) start(t *testing.T) func(*notifier.Keys) map[notifier.Channel]sender.Channel {
	l.receiver, l.says = &receiver{refuse: map[string]*smtp.SMTPError{}}, make(chan struct{})
	server := smtp.NewServer(l)
	listener, port := listen(t)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return func(keys *notifier.Keys) map[notifier.Channel]sender.Channel {
		email, err := sender.NewEmail(sender.EmailConfig{Host: "127.0.0.1", Port: port, From: "alerts@lien.example", Plain: true, Links: links}, keys)
		check(t, err)
		return map[notifier.Channel]sender.Channel{notifier.Email: email}
	}
}

// waits until the server has had a mail for some attempts' time.
func (l *late) waits(t *testing.T, attempts float64) {
	t.Helper()
	polltest.Until(t, "the mail comes", func() bool { return len(l.mails()) > 0 })
	came := time.Now()
	polltest.Until(t, "attempts could have ended", func() bool {
		return time.Since(came) > time.Duration(attempts*float64(impatient().Timeout))
	})
}

// A mail server may take longer to say that it has a mail than an attempt may last otherwise. The mail is sent once:
// the attempt waits for that, and no other node takes it over meanwhile.
func TestAMailServerThatAnswersLate(t *testing.T) {
	t.Parallel()
	r, ann := new(late), common.Address{1}
	channels := r.start(t)
	h := newHouse(t, impatient(), channels)
	h.deliver(rate.Inf, impatient(), channels) // another node
	h.subscribe(ann, notifier.Email, "ann@example.com", "m")
	h.fire(ann)
	r.waits(t, 2.5)
	close(r.says)
	h.settled(1)
	if n := len(r.mails()); n != 1 {
		t.Errorf("%d mails of one alert", n)
	}
}

// What is said late of an address is of that one, and not of the one that the wallet has named meanwhile: which is
// told, whatever the former one did with the mail. It is not told twice if it is the same.
func TestAnAnswerThatIsOfTheFormerAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says  error
		named string
		mails int
	}{
		"refused":  {&smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}, "right@example.com", 2},
		"taken":    {nil, "right@example.com", 2},
		"the same": {nil, "wrong@Example.com", 1}, // spelt otherwise
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ann := &late{to: "wrong", err: c.says}, common.Address{1}
			h := newHouse(t, impatient(), r.start(t))
			h.subscribe(ann, notifier.Email, "wrong@example.com", "m")
			h.fire(ann)
			polltest.Until(t, "the mail comes", func() bool { return len(r.mails()) > 0 })
			h.again(ann, notifier.Email, c.named)
			r.waits(t, 1)
			close(r.says)
			h.settled(1)
			if why := h.disabled(ann); why != "" {
				t.Errorf("the address that was named last is disabled: %q", why)
			}
			if n := len(r.mails()); n != c.mails {
				t.Errorf("%d mails", n)
			}
		})
	}
}

// leaving is a node from which its partitions move, as when others join.
type leaving struct {
	read.Source
	left atomic.Bool
}

func (l *leaving) View(ctx context.Context, partition int32, at *topics.BlockRef) (state.View, error) {
	if l.left.Load() {
		return nil, engine.ErrNotHere
	}
	return l.Source.View(ctx, partition, at)
}

func (l *leaving) Watermarks() []read.Watermark {
	if l.left.Load() {
		return nil
	}
	return l.Source.Watermarks()
}

// former starts the sender of a node that is about to lose its partitions.
func (h *house) former(channels func(*notifier.Keys) map[notifier.Channel]sender.Channel, conf sender.Config, producer *kafka.Producer) (*leaving, *observer.ObservedLogs) {
	h.t.Helper()
	conf.Catalogue, conf.Look, conf.Hold = h.cat, h.look, time.Second
	node := &leaving{Source: h.node}
	log, logged := observer.New(zap.WarnLevel)
	out, err := sender.New(conf, node, producer, h.keys, map[notifier.Channel]*sender.Line{
		notifier.Email: {Channel: channels(h.keys)[notifier.Email], Rate: rate.NewLimiter(rate.Inf, 1)},
	}, zap.New(log), prometheus.NewRegistry())
	check(h.t, err)
	polltest.Run(h.t, out.Run)
	return node, logged
}

// A partition moves while the answer to a mail is awaited, and no process dies: the mail is sent once, unless the
// wallet names another address meanwhile.
func TestAPartitionMovesWhileAMailIsAwaited(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named string
		mails int
	}{
		"all stays":       {"", 1},
		"another address": {"right@example.com", 2},
		"the same":        {"wrong@Example.com", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, ann := &late{to: "wrong"}, common.Address{1}
			channels := r.start(t)
			h := newHouse(t, impatient(), nil)
			former, _ := h.former(channels, impatient(), h.producer)
			h.subscribe(ann, notifier.Email, "wrong@example.com", "m")
			h.fire(ann)
			polltest.Until(t, "the mail comes", func() bool { return len(r.mails()) > 0 })
			former.left.Store(true)
			conf := impatient()
			conf.Hold = time.Second
			h.deliver(rate.Inf, conf, channels) // the node that has the partition now
			if c.named != "" {
				h.again(ann, notifier.Email, c.named)
			}
			r.waits(t, 3)
			close(r.says)
			h.settled(1)
			if n := len(r.mails()); n != c.mails {
				t.Errorf("%d mails of one alert", n)
			}
		})
	}
}

// Kafka takes nothing for a while, and the partition has moved: a renewal is written until Kafka takes it.
func TestKafkaIsAwayWhileAMailIsAwaited(t *testing.T) {
	t.Parallel()
	broker := brokertest.StartRefusing(t)
	r, ann := new(late), common.Address{1}
	channels := r.start(t)
	conf := impatient()
	conf.Hold, conf.Timeout = time.Second, 8*time.Second
	h := newHouseOn(t, broker.Addrs, 1, rate.Inf, conf, nil)
	own, err := kafka.NewProducer(h.cfg, "q", kafka.ProducerOptions{Timeout: time.Second})
	check(t, err)
	t.Cleanup(own.Close)
	former, logged := h.former(channels, conf, own)
	h.subscribe(ann, notifier.Email, "ann@example.com", "m")
	h.fire(ann)
	polltest.Until(t, "the mail comes", func() bool { return len(r.mails()) > 0 })
	former.left.Store(true)
	h.deliver(rate.Inf, conf, channels)
	broker.RefuseForNow()
	polltest.Until(t, "a renewal has failed", func() bool { return logged.FilterMessage("cannot renew the claim of an attempt").Len() > 0 })
	broker.Take()
	r.waits(t, 5)
	close(r.says)
	h.settled(1)
	if n := len(r.mails()); n != 1 {
		t.Errorf("%d mails of one alert", n)
	}
}
