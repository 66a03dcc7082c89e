// Package sender delivers what the notifier's outbox holds: at least once, with the alert's ID as what a receiver
// may know it again by. It must not decide what is due, and keeps no state but what is under way: what came of
// an attempt is a command to the notifier.
package sender

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Config of a Sender. Start from DefaultConfig.
type Config struct {
	Catalogue topics.Catalogue
	Look      time.Duration // between two looks at the outbox
	Timeout   time.Duration // of an attempt
	Parallel  int           // attempts under way at once, of each channel
	PerHost   int           // and of each host of a channel that has many
	Queue     int           // alerts of each channel that wait for their turn in memory
	Attempts  int           // until an alert is given up
	FirstWait time.Duration // after a failure; it doubles from one to the next, up to LastWait
	LastWait  time.Duration
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Look: 500 * time.Millisecond, Timeout: 30 * time.Second, Parallel: 16, PerHost: 4, Queue: 256, Attempts: 12,
		FirstWait: 10 * time.Second, LastWait: 30 * time.Minute,
	}
}

// Validate returns every fault of the configuration.
func (c *Config) Validate() error {
	var faults []error
	if c.Catalogue.Partitions < 1 {
		faults = append(faults, fmt.Errorf("partitions: %d", c.Catalogue.Partitions))
	}
	if c.Parallel < 1 || c.PerHost < 1 || c.Queue < 1 || c.Attempts < 1 {
		faults = append(faults, fmt.Errorf("attempts: %d concurrent, %d per host, %d queued, %d per alert; all must be positive", c.Parallel, c.PerHost, c.Queue, c.Attempts))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"look", c.Look}, {"timeout", c.Timeout}, {"first wait", c.FirstWait}, {"last wait", c.LastWait}} {
		if d.d <= 0 {
			faults = append(faults, fmt.Errorf("%s: %s is not positive", d.name, d.d))
		}
	}
	return errors.Join(faults...)
}

// Message is an alert for one receiver.
type Message struct {
	ID        string // the same whenever it is sent again
	Channel   notifier.Channel
	To        string // address: an email address, the ID of a chat, a push subscription
	Alert     notifier.Alert
	Event     topics.Alert
	CreatedAt int64 // of the subscription
}

// Channel delivers messages. Its errors: nil, a *Failure, or any other, which is tried again.
type Channel interface {
	Send(ctx context.Context, m *Message) error
}

// Failure is a receiver's refusal.
type Failure struct {
	Reason string        // in our own words: receivers like to repeat the address
	After  time.Duration // not before; 0: as we like
	Dead   bool          // this message never
	Gone   bool          // no message to this address ever
}

func (f *Failure) Error() string { return f.Reason }

// Source is the node of the notifier.
type Source interface {
	read.Source
	Stopped() error
}

// Line is a channel with its rate.
type Line struct {
	Channel Channel
	Rate    *rate.Limiter
}

// Sender delivers what the partitions that this node owns have in their outboxes.
//
// Invariants:
//  1. An alert is under way once at a time, from its attempt until the node has applied what came of it.
//  2. What came of an attempt is written before the next attempt of the same alert: a node that dies in between
//     leaves an alert that another node sends again.
//  3. An alert is looked at again when its turn has come: what was cancelled while it waited is not sent.
type Sender struct {
	cfg      Config
	source   Source
	producer *kafka.Producer
	keys     *notifier.Keys
	lines    map[notifier.Channel]*Line
	log      *zap.Logger
	metrics  *metrics

	queue map[notifier.Channel]chan struct{} // those that wait or are under way
	slots map[notifier.Channel]chan struct{} // those that are under way

	mu    sync.Mutex
	busy  map[string]*under // by row
	hosts map[string]int    // attempts that wait or are under way, of channels with many hosts
}

// New makes a sender; it does nothing before Run. A channel without a line is left to other nodes.
func New(cfg Config, source Source, producer *kafka.Producer, keys *notifier.Keys, lines map[notifier.Channel]*Line, reg prometheus.Registerer, log *zap.Logger) (*Sender, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Sender{
		cfg: cfg, source: source, producer: producer, keys: keys, lines: lines, log: log.Named("sender"), metrics: newMetrics(reg),
		busy: map[string]*under{}, hosts: map[string]int{},
		queue: map[notifier.Channel]chan struct{}{}, slots: map[notifier.Channel]chan struct{}{},
	}
	for channel := range lines {
		s.queue[channel] = make(chan struct{}, cfg.Queue)
		s.slots[channel] = make(chan struct{}, cfg.Parallel)
	}
	return s, nil
}

// Run sends until ctx is done, and ends with the attempts that are under way.
func (s *Sender) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	tick := time.NewTicker(s.cfg.Look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s.metrics.oldest.Reset() // of partitions that went to another node
		for _, w := range s.source.Watermarks() {
			if w.Role != topics.RoleOwner {
				continue
			}
			if err := s.look(ctx, &wg, w.Partition); err != nil && ctx.Err() == nil {
				s.log.Warn("read the outbox", zap.Int32("partition", w.Partition), zap.Error(err))
			}
		}
	}
}

// due is an alert to be sent now.
type due struct {
	partition int32
	row       []byte
	to        notifier.Address
	alert     notifier.Alert
	sub       notifier.Subscription
	host      string // of a channel that has many
}

// look begins an attempt of everything that is due in a partition, as far as there is room.
func (s *Sender) look(ctx context.Context, wg *sync.WaitGroup, partition int32) error {
	view, err := s.source.View(ctx, partition, nil)
	if err != nil {
		return err
	}
	defer view.Close()
	if err := s.forget(partition, view); err != nil {
		return err
	}
	now := time.Now()
	rows, oldest, err := s.due(view, now)
	if err != nil {
		return err
	}
	s.metrics.oldest.WithLabelValues(fmt.Sprint(partition)).Set(oldest.Seconds())
	for _, row := range rows {
		to, ok := notifier.ParseRow(row)
		if !ok {
			continue
		}
		queue, served := s.queue[to.Channel]
		if !served || len(queue) == cap(queue) {
			continue // no room: at a later look
		}
		d := due{partition: partition, row: row, to: to}
		var found bool
		if d.alert, d.sub, found, err = notifier.Pending(view, row); err != nil {
			return err
		}
		if to.Channel == notifier.Push {
			d.host = d.sub.Mask // it is the host of the endpoint
		}
		if !found || !s.begin(&d) {
			continue
		}
		select {
		case queue <- struct{}{}:
		default:
			s.end(&d, false)
			continue
		}
		wg.Go(func() {
			defer func() { <-queue }()
			s.end(&d, s.attempt(ctx, &d))
		})
	}
	return nil
}

// maxLook bounds the rows of one look.
const maxLook = 10_000

// due lists the rows that are due, the longest due first.
func (s *Sender) due(view state.View, now time.Time) (rows [][]byte, oldest time.Duration, err error) {
	err = view.ScanIndex(notifier.OutboxByTime, nil, nil, func(entry, _ []byte) bool {
		if len(entry) < 8 {
			return true
		}
		at := time.UnixMilli(int64(binary.BigEndian.Uint64(entry)))
		if at.After(now) || len(rows) == maxLook {
			return false
		}
		oldest = max(oldest, now.Sub(at))
		rows = append(rows, slices.Clone(entry[8:]))
		return true
	})
	return rows, oldest, err
}

// under is an attempt that is under way, or reported and not yet applied.
type under struct {
	partition int32
	attempt   int
	reported  bool
}

// begin says whether an attempt may begin: none of the alert is under way, and its host has room.
func (s *Sender) begin(d *due) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[string(d.row)] != nil || d.host != "" && s.hosts[d.host] >= s.cfg.PerHost {
		return false
	}
	s.busy[string(d.row)] = &under{partition: d.partition, attempt: d.alert.Attempt}
	if d.host != "" {
		s.hosts[d.host]++
	}
	return true
}

// end is the end of an attempt. One that was reported is held on to until the node has applied that.
func (s *Sender) end(d *due, reported bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.host != "" {
		if s.hosts[d.host]--; s.hosts[d.host] == 0 {
			delete(s.hosts, d.host)
		}
	}
	if u := s.busy[string(d.row)]; u != nil && reported {
		u.reported = true
	} else {
		delete(s.busy, string(d.row))
	}
}

// forget takes out what was reported and is applied as of a view.
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
		if !found || alert.Attempt > u.attempt {
			delete(s.busy, row)
		}
	}
	return nil
}
