package sender

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
)

// due is an alert to send now.
type due struct {
	partition    int32
	row          []byte
	to           notifier.Address
	alert        notifier.Alert
	sub          notifier.Subscription
	now          uint64 // block time of the head
	host         string // for a channel with many hosts: siteOf the address
	site         *site  // of host, set when the attempt begins
	onProbation  bool   // the site was on probation then
	trustEnds    <-chan struct{}
	claim        string
	taker        string // Taker of the address that it was sent to
	lost         bool   // the claim was not renewed
	failedBefore bool   // all attempts have failed
}

// scanDue starts attempts of due alerts in a partition, as far as there is room. Alerts of deals come first, the
// wallets taking turns; then requests and news, which any wallet can ask for without a deal.
func (s *Sender) scanDue(ctx context.Context, wg *sync.WaitGroup, of read.Watermark) error {
	partition := of.Partition
	began := time.Now()
	o := s.owned[partition]
	if o == nil {
		o = new(owned)
		s.owned[partition] = o
	}
	if began.Before(o.rests) {
		return nil
	}
	defer func() { o.rests = time.Now().Add(restsTimes * time.Since(began)) }()
	view, err := s.source.View(ctx, partition, nil)
	if err != nil {
		return err
	}
	defer view.Close()
	if err := s.forget(partition, view); err != nil {
		return err
	}
	if o.pace.began.IsZero() {
		if err := s.unserved(view); err != nil {
			return err
		}
	}
	clock, held, err := s.paced(o, of, view, began)
	if err != nil {
		return err
	}
	rows, kept, err := s.due(view, partition, clock.Head, began, held)
	if err != nil {
		return err
	}
	for _, row := range kept {
		if err := s.expire(ctx, wg, view, partition, row, began); err != nil {
			return err
		}
	}
	for _, row := range rows {
		if err := s.start(ctx, wg, view, partition, row, began); err != nil {
			return err
		}
	}
	return nil
}

// restsTimes is the minimum pause between two scans, as a multiple of the first one's duration.
const restsTimes = 5

// start starts an attempt of an alert, if it is to be sent and there is room.
func (s *Sender) start(ctx context.Context, wg *sync.WaitGroup, view state.View, partition int32, row []byte, now time.Time) error {
	d := due{partition: partition, row: row}
	d.to, _ = notifier.ParseRow(row)
	queue, quota := s.queue[d.to.Channel], s.nonDeal[d.to.Channel].queue
	if len(queue) == cap(queue) || !d.to.Stage.OfDeal() && len(quota) == cap(quota) {
		return nil
	}
	var found bool
	var err error
	if d.alert, d.sub, found, err = notifier.Pending(view, row); err != nil {
		return err
	}
	if d.alert.Obsolete {
		s.giveUp(ctx, wg, &d, now, resultOver, "the epoch is over")
		return nil
	}
	if next := time.UnixMilli(d.alert.Next); !found || next.After(now) { // a store that an older build has written has stale entries
		s.pass(&d, passed{until: now.Add(passedFor), nothingToSend: true})
		return nil
	}
	if _, has := s.keys.KeyOf(d.sub.Sealed); !has {
		s.pass(&d, passed{until: now.Add(keylessFor)}) // it waits for its key, without using up attempts
		return nil
	}
	if d.to.Channel == notifier.Push {
		d.host = siteOf(d.sub.Mask) // of a push subscription the mask is the host
	}
	if !s.lapsed(&d, now) {
		return nil
	}
	if !s.begin(&d) {
		s.pass(&d, passed{host: d.host})
		return nil
	}
	delete(s.owned[partition].passed, string(row))
	select {
	case queue <- struct{}{}:
	default:
		s.end(&d, false)
		return nil
	}
	if !d.to.Stage.OfDeal() {
		quota <- struct{}{} // has room: only this goroutine fills it
	} else {
		s.owned[partition].turns.took(d.to.Wallet)
	}
	wg.Go(func() {
		defer func() {
			if <-queue; !d.to.Stage.OfDeal() {
				<-quota
			}
		}()
		s.end(&d, s.attempt(ctx, &d))
	})
	return nil
}

// passed is why a due alert was passed over, so that it is not read again meanwhile: its host is busy, or there is
// nothing to send for now because news were retracted.
type passed struct {
	host          string
	until         time.Time
	nothingToSend bool
}

const (
	passedFor  = time.Minute
	keylessFor = 5 * time.Second
	maxPassed  = 1 << 18 // rows that are remembered: beyond that, all are dropped
)

func (s *Sender) pass(d *due, p passed) {
	o := s.owned[d.partition]
	if o.passed == nil || len(o.passed) >= maxPassed {
		o.passed = map[string]passed{}
	}
	o.passed[string(d.row)] = p
}

// lapsed reports whether no other process can be sending the alert; this one has no attempt of it. The time counts from
// when this process first saw the claim, which was written before, so clocks need not agree. A claim of this process
// has no attempt any more: it was applied too late.
func (s *Sender) lapsed(d *due, now time.Time) bool {
	o := s.owned[d.partition]
	if o.claims == nil || len(o.claims) >= maxPassed {
		o.claims = map[string]claimed{}
	}
	if d.alert.By == "" || strings.HasPrefix(d.alert.By, s.name) {
		delete(o.claims, string(d.row))
		return true
	}
	of := o.claims[string(d.row)]
	if of.by != d.alert.By {
		of = claimed{d.alert.By, now}
		o.claims[string(d.row)] = of
	}
	return now.Sub(of.since) > s.cfg.Timeout+s.cfg.Timeout/10 // clocks run at different rates
}

const (
	maxStart  = 2000    // alerts that a scan may start
	maxExpire = 100     // alerts that it may give up because no node has sent them in time
	maxCount  = 1 << 16 // news that it counts for the metric, beyond those that it may start
)

// dueScan is a scan of the indexes of due alerts.
type dueScan struct {
	s       *Sender
	now     time.Time
	held    bool
	over    map[string]passed
	waits   map[notifier.Channel]waiting
	expired [][]byte
}

// due lists the rows that are due and may be started: alerts of deals, the wallets taking turns; then requests to
// confirm an address, those of wallets without a deal last; then news, the oldest first. expired are rows to give up,
// as they were due long ago.
func (s *Sender) due(view state.View, partition int32, head uint64, now time.Time, held bool) (rows, expired [][]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owned[partition]
	f := dueScan{s: s, now: now, held: held, over: o.passed, waits: map[notifier.Channel]waiting{}}
	deals := &o.turns
	deals.begin(head)
	var requests, news [][]byte
	counted := 0
	request := func(row, _ []byte) bool {
		requests = append(requests, slices.Clone(row))
		return len(requests) < maxStart
	}
	err = errors.Join(
		f.scan(view, notifier.OutboxByClass, []byte{notifier.DueDeals}, func(row, deadline []byte) bool {
			deals.add(row, deadline)
			return true
		}),
		f.scan(view, notifier.OutboxByClass, []byte{notifier.DueRequests}, request),
		f.scan(view, notifier.OutboxByClass, []byte{notifier.DueStrangers}, request),
		f.scan(view, notifier.OutboxByTime, nil, func(row, _ []byte) bool {
			if to, _ := notifier.ParseRow(row); !to.Stage.OfNews() { // written by an older build
				deals.add(row, nil)
			} else if len(news) < maxStart {
				news = append(news, slices.Clone(row))
			}
			counted++
			return len(news) < maxStart || counted < maxCount
		}))
	s.metrics.show(partition, f.waits)
	rows = slices.Concat(deals.list(maxStart), requests, news)
	return rows[:min(len(rows), maxStart)], f.expired, err
}

// scan goes through the due entries of an index, the oldest first, and passes those that may be started to take, until
// it returns false. In OutboxByTime it skips what OutboxByClass has too.
func (f *dueScan) scan(view state.View, index byte, class []byte, take func(row, value []byte) bool) error {
	looked := 0
	return view.ScanIndex(index, class, nil, func(entry, value []byte) bool {
		entry = entry[min(len(class), len(entry)):]
		if len(entry) < 8 {
			return true
		}
		at := time.UnixMilli(int64(binary.BigEndian.Uint64(entry)))
		if looked++; at.After(f.now) || looked > f.s.cfg.Scan {
			return false
		}
		if index == notifier.OutboxByTime && len(value) > 0 {
			return true
		}
		if to, ok := notifier.ParseRow(entry[8:]); ok && f.may(to, entry[8:], at) {
			return take(entry[8:], value)
		}
		return true
	})
}

// may reports whether a row that is due may be started.
func (f *dueScan) may(to notifier.Address, row []byte, at time.Time) bool {
	s := f.s
	p, was := f.over[string(row)]
	u := s.busy[string(row)]
	if !p.nothingToSend || !f.now.Before(p.until) {
		counts := to.Stage.OfDeal() && s.trusted(p.host) && (u == nil || !u.onProbation)
		f.waits[to.Channel] = f.waits[to.Channel].with(f.now.Sub(at), counts)
	}
	if f.held && to.Stage != notifier.ToConfirm || u != nil {
		return false
	}
	if f.now.Sub(at) > s.cfg.Keep && len(f.expired) < maxExpire {
		f.expired = append(f.expired, slices.Clone(row))
		return false
	}
	if queue, served := s.queue[to.Channel]; !served || len(queue) == cap(queue) {
		return false // no room: retry at the next look
	}
	if quota := s.nonDeal[to.Channel].queue; !to.Stage.OfDeal() && len(quota) == cap(quota) {
		return false
	}
	if was { // it stays passed over until it is started
		return !f.now.Before(p.until) && s.hasRoom(p.host, to.Stage.OfDeal())
	}
	return true
}
