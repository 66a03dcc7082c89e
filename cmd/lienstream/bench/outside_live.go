package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

// watch reads a raw topic and a topic of deals as they grow.
type watch struct {
	vault      abi.ABI
	partitions int
	records    chan watched
	errs       chan error
	close      func()
}

// watched is a record, and when it could be read.
type watched struct {
	*kgo.Record

	at   time.Time
	deal bool // it is a deal's row, as committed; otherwise a raw record, committed or not
}

// watchBuffer is more than comes while a record is looked at.
const watchBuffer = 1 << 16

// watch begins behind all that either topic has. Close it.
func (o *outside) watch(ctx context.Context, raw, deals string) (*watch, error) {
	vault, err := contracts.ABI("DealVault")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{vault: vault, records: make(chan watched, watchBuffer), errs: make(chan error, 2), close: cancel}
	if w.partitions, err = o.follow(ctx, w, deals, true); err == nil {
		_, err = o.follow(ctx, w, raw, false)
	}
	if err != nil {
		cancel()
	}
	return w, err
}

func (o *outside) follow(ctx context.Context, w *watch, topic string, deals bool) (partitions int, err error) {
	listed, err := o.admin.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, listed.Error()); err != nil {
		return 0, err
	}
	from := map[int32]kgo.Offset{}
	listed.Each(func(l kadm.ListedOffset) { from[l.Partition] = kgo.NewOffset().At(l.Offset) })
	level := kgo.ReadUncommitted()
	if deals {
		level = kgo.ReadCommitted()
	}
	c, err := o.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return 0, err
	}
	go func() {
		defer c.Close()
		for {
			fetched := c.PollFetches(ctx)
			now := time.Now()
			if ctx.Err() != nil {
				return
			}
			if err := fetched.Err(); err != nil {
				w.errs <- fmt.Errorf("follow %s: %w", topic, err)
				return
			}
			fetched.EachRecord(func(r *kgo.Record) {
				select {
				case w.records <- watched{r, now, deals}:
				case <-ctx.Done():
				}
			})
		}
	}()
	return len(from), nil
}

var errSilent = errors.New("no more deals came")

// next waits for a record until the end.
func (w *watch) next(ctx context.Context, end <-chan time.Time) (watched, error) {
	select {
	case r := <-w.records:
		return r, nil
	case err := <-w.errs:
		return watched{}, err
	case <-end:
		return watched{}, errSilent
	case <-ctx.Done():
		return watched{}, ctx.Err()
	}
}

// returns waits for deals of the first partition that has any, and for those of all.
func (w *watch) returns(ctx context.Context) (first, all time.Time, err error) {
	end := time.After(patience)
	came := map[int32]bool{}
	for len(came) < w.partitions {
		r, err := w.next(ctx, end)
		if err != nil {
			return first, all, fmt.Errorf("%d of %d partitions came back: %w", len(came), w.partitions, err)
		}
		if !r.deal || came[r.Partition] {
			continue
		}
		if len(came) == 0 {
			first = r.at
		}
		came[r.Partition], all = true, r.at
	}
	return first, all, nil
}

// appended is a block's change of a deal.
type appended struct {
	block uint64
	at    time.Time
}

// changes reports whether a log changes its deal's row for sure. A bid and its withdrawal in one block leave the row as it was,
// and then there is no record.
func (w *watch) changes(l *topics.Log) bool {
	event, err := w.vault.EventByID(l.Topics[0])
	return err == nil && strings.HasPrefix(event.Name, "Deal")
}

// latencies are, in ms, from when a log that changes a deal can be read from the raw topic's end, though not committed, until a
// row of the deal as of that block or a later one is committed. Logs of the first moments do not count.
func (w *watch) latencies(ctx context.Context, of, skip time.Duration) ([]float64, error) {
	began, end := time.Now(), time.After(of)
	waiting, shown := map[string][]appended{}, map[string]uint64{}
	var all []float64
	for {
		r, err := w.next(ctx, end)
		if errors.Is(err, errSilent) {
			break
		}
		if err != nil {
			return nil, err
		}
		if r.deal {
			_, block, err := message(r.Value)
			if err != nil {
				return nil, err
			}
			id := string(r.Key)
			shown[id] = max(shown[id], block)
			waiting[id] = slices.DeleteFunc(waiting[id], func(a appended) bool {
				if a.block > block {
					return false
				}
				if a.at.Sub(began) > skip {
					all = append(all, milliseconds(r.at.Sub(a.at)))
				}
				return true
			})
			continue
		}
		id, ok := bytes.CutPrefix(r.Key, []byte("deal:"))
		if !ok {
			continue
		}
		raw, err := topics.DecodeRaw(r.Value)
		if err != nil {
			return nil, err
		}
		l, ok := raw.(*topics.Log)
		if key := string(id); ok && w.changes(l) && l.Block.Number > shown[key] && !slices.ContainsFunc(waiting[key], func(a appended) bool { return a.block == l.Block.Number }) {
			waiting[key] = append(waiting[key], appended{l.Block.Number, r.at})
		}
	}
	if len(all) == 0 {
		return nil, errSilent
	}
	for id, left := range waiting {
		for _, a := range left {
			if late := time.Since(a.at); late > lostAfter {
				return nil, fmt.Errorf("deal %s: block %d was appended %s ago, and there is no row as of it", id, a.block, late)
			}
		}
	}
	return all, nil
}

// lostAfter is when a change that nobody shows is taken for lost.
const lostAfter = 5 * time.Second

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
