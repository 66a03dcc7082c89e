package sender

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
)

// due is an alert to send now.
type due struct {
	partition int32
	row       []byte
	to        notifier.Address
	alert     notifier.Alert
	sub       notifier.Subscription
	now       uint64 // block time
	host      string // of a channel with many hosts, what the host belongs to
	site      *site  // of it, since the attempt began
	claim     string
}

// look starts attempts of due alerts in a partition, as far as there is room: the oldest first, but those of deals before
// what everybody may ask for.
func (s *Sender) look(ctx context.Context, wg *sync.WaitGroup, of read.Watermark) error {
	partition := of.Partition
	began := time.Now()
	if began.Before(s.rests[partition]) {
		return nil
	}
	defer func() { s.rests[partition] = time.Now().Add(restsTimes * time.Since(began)) }()
	view, err := s.source.View(ctx, partition, nil)
	if err != nil {
		return err
	}
	defer view.Close()
	if err := s.forget(partition, view); err != nil {
		return err
	}
	if s.paces[partition] == nil {
		if err := s.unserved(view); err != nil {
			return err
		}
	}
	held, err := s.paced(of, view, began)
	if err != nil {
		return err
	}
	rows, kept, err := s.due(view, partition, began, held)
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

// restsTimes is how many times as long as a look takes the next one waits at least.
const restsTimes = 5

// start starts an attempt of an alert, if it is to be sent and there is room.
func (s *Sender) start(ctx context.Context, wg *sync.WaitGroup, view state.View, partition int32, row []byte, now time.Time) error {
	d := due{partition: partition, row: row}
	d.to, _ = notifier.ParseRow(row)
	queue, half := s.queue[d.to.Channel], s.halves[d.to.Channel].queue
	if len(queue) == cap(queue) || !d.to.Stage.OfDeal() && len(half) == cap(half) {
		return nil
	}
	var found bool
	var err error
	if d.alert, d.sub, found, err = notifier.Pending(view, row); err != nil {
		return err
	}
	if d.alert.Over {
		s.giveUp(ctx, wg, &d, now, "the epoch is over")
		return nil
	}
	if !found {
		s.pass(&d, passed{until: now.Add(passedFor), nothing: true})
		return nil
	}
	if _, has := s.keys.KeyOf(d.sub.Sealed); !has {
		s.pass(&d, passed{until: now.Add(keylessFor)}) // it waits for its key: attempts would be used up
		return nil
	}
	if d.to.Channel == notifier.Push {
		d.host = siteOf(d.sub.Mask) // the mask of a push subscription is its host
	}
	if !s.lapsed(&d, now) {
		return nil
	}
	if !s.begin(&d) {
		s.pass(&d, passed{host: d.host})
		return nil
	}
	select {
	case queue <- struct{}{}:
	default:
		s.end(&d, false)
		return nil
	}
	if !d.to.Stage.OfDeal() {
		half <- struct{}{} // has room: nobody else puts in
	}
	wg.Go(func() {
		defer func() {
			if <-queue; !d.to.Stage.OfDeal() {
				<-half
			}
		}()
		s.end(&d, s.attempt(ctx, &d))
	})
	return nil
}

// passed is why an alert that is due was passed over, so that it is not read again meanwhile: its host is busy, or there is
// nothing to send for now, since news were retracted.
type passed struct {
	host    string
	until   time.Time
	nothing bool // to send
}

const (
	passedFor  = time.Minute
	keylessFor = 5 * time.Second
	maxPassed  = 1 << 18 // rows that are remembered: beyond that, all are forgotten
)

func (s *Sender) pass(d *due, p passed) {
	all := s.passed[d.partition]
	if all == nil || len(all) >= maxPassed {
		all = map[string]passed{}
		s.passed[d.partition] = all
	}
	all[string(d.row)] = p
}

// lapsed reports whether nobody else can be sending the alert. The time is since we know of the claim: it was written
// before that, and clocks are not compared.
func (s *Sender) lapsed(d *due, now time.Time) bool {
	known := s.claims[d.partition]
	if known == nil || len(known) >= maxPassed {
		known = map[string]claimed{}
		s.claims[d.partition] = known
	}
	if d.alert.By == "" {
		delete(known, string(d.row))
		return true
	}
	of := known[string(d.row)]
	if of.by != d.alert.By {
		of = claimed{d.alert.By, now}
		known[string(d.row)] = of
	}
	return now.Sub(of.since) > s.cfg.Timeout+s.cfg.Timeout/10 // clocks run at different rates
}

const (
	maxStart  = 2000    // alerts that a look may start
	maxExpire = 100     // and give up, as nobody has sent them in time
	maxLook   = 1 << 20 // and that it passes over
	maxCount  = 1 << 16 // and that it counts, once it has found as many as it may start
)

// due lists the rows that are due and may be started: those of deals, then requests to confirm an address, then news, each the
// oldest first; and those that are to be given up, as they were due long ago.
func (s *Sender) due(view state.View, partition int32, now time.Time, held bool) (rows, expired [][]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var requests, news [][]byte
	looked, over := 0, s.passed[partition]
	waits := map[notifier.Channel]waiting{}
	err = view.ScanIndex(notifier.OutboxByTime, nil, nil, func(entry, _ []byte) bool {
		if len(entry) < 8 {
			return true
		}
		at := time.UnixMilli(int64(binary.BigEndian.Uint64(entry)))
		looked++
		full := len(rows) == maxStart
		if at.After(now) || looked > maxLook || full && looked > maxCount {
			return false
		}
		row := entry[8:]
		to, ok := notifier.ParseRow(row)
		if !ok {
			return true
		}
		p, was := over[string(row)]
		if !p.nothing || !now.Before(p.until) {
			waits[to.Channel] = waits[to.Channel].with(now.Sub(at))
		}
		if held && to.Stage != notifier.ToConfirm || full || s.busy[string(row)] != nil {
			return true
		}
		if now.Sub(at) > s.cfg.Keep && len(expired) < maxExpire {
			expired = append(expired, slices.Clone(row))
			return true
		}
		if queue, served := s.queue[to.Channel]; !served || len(queue) == cap(queue) {
			return true // no room: retry at the next look
		}
		if half := s.halves[to.Channel].queue; !to.Stage.OfDeal() && len(half) == cap(half) {
			return true
		}
		if was {
			if now.Before(p.until) || !s.hasRoom(p.host, to.Stage.OfDeal()) {
				return true
			}
			delete(over, string(row))
		}
		list := &rows
		if to.Stage.OfNews() {
			list = &news
		} else if !to.Stage.OfDeal() {
			list = &requests
		}
		if len(*list) < maxStart {
			*list = append(*list, slices.Clone(row))
		}
		return true
	})
	s.metrics.show(partition, waits)
	rows = slices.Concat(rows, requests, news)
	return rows[:min(len(rows), maxStart)], expired, err
}
