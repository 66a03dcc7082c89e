// Package sender delivers the alerts of the notifier's outbox: at least once, with the alert's ID for
// deduplication. It must not decide what is due, and keeps no state except the running attempts: the result of
// an attempt is a command to the notifier.
package sender

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Config of a Sender. Start from DefaultConfig.
type Config struct {
	Catalogue topics.Catalogue
	Look      time.Duration // poll interval of the outbox
	Timeout   time.Duration // of an attempt
	Answer    time.Duration // maximum wait for the answer of a server that has got the whole mail
	Parallel  int           // concurrent attempts per channel
	PerHost   int           // and per host, for a channel with many hosts
	Queue     int           // queued alerts per channel
	Scan      int           // maximum rows of the outbox per scan, each of deals, of requests and of news
	Hold      time.Duration // how long alerts wait while the notifier is behind the chain (pace)
	Attempts  int           // after which an alert is given up
	FirstWait time.Duration // after the first failure; it doubles with each one up to LastWait
	LastWait  time.Duration
	Keep      time.Duration // how long an alert waits that no node can send

	Confirmation string // policy by which alerts fire, as a metric label
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Look: 500 * time.Millisecond, Timeout: 30 * time.Second, Answer: answerTime, Parallel: 16, PerHost: 4, Queue: 256, Scan: 1 << 20, Attempts: 72, // about a day
		Hold:      time.Minute,
		FirstWait: 10 * time.Second, LastWait: 30 * time.Minute, Keep: 7 * 24 * time.Hour,
	}
}

// Validate returns all errors of the configuration.
func (c *Config) Validate() error {
	var faults []error
	if c.Catalogue.Partitions < 1 {
		faults = append(faults, fmt.Errorf("partitions: %d", c.Catalogue.Partitions))
	}
	if c.Parallel < 1 || c.PerHost < 1 || c.Queue < 1 || c.Scan < 1 || c.Attempts < 1 {
		faults = append(faults, fmt.Errorf("attempts: %d concurrent, %d per host, %d queued of %d rows, %d per alert; all must be positive", c.Parallel, c.PerHost, c.Queue, c.Scan, c.Attempts))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"look", c.Look}, {"timeout", c.Timeout}, {"answer", c.Answer}, {"hold", c.Hold}, {"first wait", c.FirstWait}, {"last wait", c.LastWait}, {"keep", c.Keep}} {
		if d.d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %s is not positive", d.name, d.d))
		}
	}
	return errors.Join(faults...)
}

// Message is an alert for one recipient.
type Message struct {
	ID        string // the same for every attempt
	Channel   notifier.Channel
	To        string // an email address, a chat ID or a push subscription
	Alert     notifier.Alert
	Event     topics.Alert
	CreatedAt int64  // of the subscription
	Now       uint64 // estimated block time of the chain's head
	Until     uint64 // time from which the alert no longer helps; 0: none
	ConfirmBy int64  // unix seconds, for a request to confirm the address

	// Written, if not nil, must be called once the server has got the whole message, and may have accepted it: if the
	// channel gave up then, the message would be sent again. It waits for the answer until the returned context is
	// done.
	Written func() context.Context
}

// Channel delivers messages. It returns nil or a *Failure. Without Dead and Gone the attempt is repeated.
type Channel interface {
	Send(ctx context.Context, m *Message) error
}

// Pausing is a channel whose server may ask for a pause of all messages. Wait returns once it is over, or ctx is.
type Pausing interface {
	Wait(ctx context.Context) error
}

// Failure is a refusal by the server.
type Failure struct {
	Reason string        // our own text: a server's may quote the address
	After  time.Duration // minimum delay of the next attempt; 0: our choice
	Dead   bool          // this message will never be accepted
	Gone   bool          // no message to this address will ever be accepted
	Silent bool          // there was no answer
	NoName bool          // there was no server: the host has no address

	// Doubtful: it concerns us, or this address for good. It concerns the address if others get our messages meanwhile.
	Doubtful bool

	Busy    bool // the server asks for fewer messages
	Unasked bool // no server was asked: it must not count against one
}

func (f *Failure) Error() string { return f.Reason }

// unreached is the failure of an exchange without a usable response. The error's text is not repeated: it may contain
// the address, the token in a URL, or the server's text.
func unreached(err error) error {
	if err == nil {
		return nil
	}
	f := &Failure{Reason: "the server could not be reached", Silent: true}
	var (
		timeout net.Error
		name    *net.DNSError
		cert    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &name) && !name.Timeout():
		f.Reason, f.NoName = "the server's name could not be resolved", true
	case errors.As(err, &timeout) && timeout.Timeout():
		f.Reason = "the server did not respond in time"
	case errors.As(err, &cert):
		f.Reason = "the server's certificate is not valid"
	case errors.Is(err, syscall.ECONNREFUSED):
		f.Reason = "the server refuses connections"
	}
	return f
}

// Sender delivers the outboxes of the partitions that this node owns.
//
// Invariants:
//  1. Each alert has at most one running attempt, which lasts until the node has applied its result.
//  2. Of all nodes only the one whose claim was applied attempts an alert. Its attempt ends within Timeout of writing the
//     claim; if it then waits for the answer to a mail, it renews the claim before that. Another node takes over an alert
//     that was claimed for longer and not reported. A claim of this process that it does not attempt any more is
//     replaced at once.
//  3. The result of an attempt is written before the next attempt of the same alert: if a node dies in
//     between, another node sends the alert again.
//  4. An alert is checked again when it is its turn: alerts cancelled while queued are not sent.
//  5. While the notifier is behind the chain, no alert is sent that coming blocks may make untrue: as long as it catches
//     up, and if it does not, for at most ten times Hold.
//  6. Alerts of deals are found however many alerts wait for a slow host, for a limited channel, or are news. Half of a
//     channel's room is for alerts of deals, however many hosts do not answer others. Push services that have not
//     answered in time lately share a quarter of the room, for alerts of any kind.
//  7. However many alerts of deals are due to one wallet, an alert of another wallet waits for one of them at a time.
type Sender struct {
	cfg      Config
	source   read.Source // the node of the notifier, whose outbox is sent
	producer *kafka.Producer
	keys     *notifier.Keys
	lines    map[notifier.Channel]*Line
	log      *zap.Logger
	metrics  *metrics
	name     string // of this process: the prefix of its claims

	queue   map[notifier.Channel]chan struct{} // queued or running
	slots   map[notifier.Channel]chan struct{} // running
	nonDeal map[notifier.Channel]nonDealQuota  // of queue and slots, for alerts of no deal

	ending chan struct{} // alerts that are being given up

	mu        sync.Mutex
	busy      map[string]*running // by row key
	sites     map[string]*site    // of channels with many hosts
	probation probation
	doubt     doubts

	warned map[notifier.Channel]bool // only Run uses it

	owned map[int32]*owned // by partition; only Run uses it
}

// owned is the state of a partition while this node owns it.
type owned struct {
	pace   pace
	claims map[string]claimed // by row: the claim of the attempt
	passed map[string]passed  // by row
	rests  time.Time          // until the next scan
	turns  turns
}

// nonDealQuota is the part of a channel that news and requests to confirm an address may use: half. The rest is for
// alerts of deals. Requests have half of its slots, and so a quarter of the channel's rate while alerts of deals wait.
type nonDealQuota struct{ queue, slots, requests chan struct{} }

// claimed is a claim and when this process first saw it.
type claimed struct {
	by    string
	since time.Time
}

// New makes a sender. It does nothing before Run. Alerts of channels without a line wait for a node that has it.
func New(cfg Config, source read.Source, producer *kafka.Producer, keys *notifier.Keys, lines map[notifier.Channel]*Line, log *zap.Logger, reg prometheus.Registerer) (*Sender, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sender{
		cfg: cfg, source: source, producer: producer, keys: keys, lines: lines, log: log.Named("sender"), metrics: newMetrics(reg), name: rand.Text() + ".",
		busy: map[string]*running{}, sites: map[string]*site{}, owned: map[int32]*owned{},
		queue: map[notifier.Channel]chan struct{}{}, slots: map[notifier.Channel]chan struct{}{}, nonDeal: map[notifier.Channel]nonDealQuota{},
		ending: make(chan struct{}, cfg.Queue), warned: map[notifier.Channel]bool{},
	}
	for channel := range lines {
		s.queue[channel] = make(chan struct{}, cfg.Queue)
		s.slots[channel] = make(chan struct{}, cfg.Parallel)
		s.nonDeal[channel] = nonDealQuota{make(chan struct{}, max(cfg.Queue/2, 1)), make(chan struct{}, max(cfg.Parallel/2, 1)), make(chan struct{}, max(cfg.Parallel/4, 1))}
	}
	return s, nil
}

// Run sends until ctx is done, and then waits for the running attempts.
func (s *Sender) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(s.cfg.Look)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		all := s.source.Watermarks()
		s.keep(all)
		for i := range all {
			w := all[(turn+i)%len(all)] // in turns, since one partition may take all the room
			if w.Role != topics.RoleOwner {
				continue
			}
			if err := s.scanDue(ctx, &wg, w); err != nil && ctx.Err() == nil {
				s.log.Warn("cannot read the outbox", zap.Int32("partition", w.Partition), zap.Error(err))
			}
		}
	}
}

// running is an attempt that is running, or reported and not yet applied.
type running struct {
	partition   int32
	attempt     int
	firedAt     uint64
	by          string // its claim, once its result is reported
	onProbation bool
	reported    bool
}

// begin reports whether an attempt may start: the alert has no other attempt, and its site has room.
func (s *Sender) begin(d *due) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[string(d.row)] != nil || !s.hasRoom(d.host, d.to.Stage.OfDeal()) {
		return false
	}
	if d.host != "" {
		s.take(d)
	}
	s.busy[string(d.row)] = &running{partition: d.partition, attempt: d.alert.Attempt, firedAt: d.alert.FiredAt, onProbation: d.onProbation}
	return true
}

// end ends an attempt. A reported one is kept until the node has applied the report.
func (s *Sender) end(d *due, reported bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.site != nil {
		s.count(d, -1)
	}
	if u := s.busy[string(d.row)]; u != nil && reported {
		u.reported, u.by = true, d.alert.By
	} else {
		delete(s.busy, string(d.row))
	}
}

// forget drops attempts whose report is applied in a view, or will be ignored because the alert was fired anew or
// another node has claimed it. If the view is older than the claim, because the node started anew, the next claim is
// applied after the report and ignored.
func (s *Sender) forget(partition int32, view state.View) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for row, u := range s.busy {
		if u.partition != partition || !u.reported {
			continue
		}
		alert, _, found, err := notifier.Pending(view, []byte(row))
		if err != nil {
			return err
		}
		if !found || alert.Attempt != u.attempt || alert.FiredAt != u.firedAt || alert.By != u.by {
			delete(s.busy, row)
		}
	}
	return nil
}
