// Package resealer encrypts subscribers' addresses with the current key, and reports how many are still encrypted with
// another. It must not send anything to them, nor log them.
package resealer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

const (
	every  = 10 * time.Minute // between passes: a service that has only the former key may still write
	again  = 10 * time.Second // after a pass that resealed an address, or could not read
	page   = 1000             // addresses that are read at a time
	atOnce = 16               // concurrent commands
)

// list reads sealed addresses, as notifier.SealedAddresses does.
type list func(state.View, []byte, int) ([]notifier.Sealed, []byte, error)

// Resealer passes through the subscriptions of the partitions that this node owns.
type Resealer struct {
	cat      topics.Catalogue
	source   read.Source
	producer *kafka.Producer
	keys     *notifier.Keys
	log      *zap.Logger
	sealed   *prometheus.GaugeVec

	mu      sync.Mutex
	missing map[int32]map[byte]int // by partition: addresses by the ID of a missing key
}

// New makes a resealer. It does nothing before Run.
func New(cat topics.Catalogue, source read.Source, producer *kafka.Producer, keys *notifier.Keys, log *zap.Logger, reg prometheus.Registerer) *Resealer {
	r := &Resealer{
		cat: cat, source: source, producer: producer, keys: keys, log: log.Named("resealer"), missing: map[int32]map[byte]int{},
		sealed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "notifier", Name: "sealed_addresses",
			Help: "Subscribers' addresses by the ID of the key that seals them, as of the last pass, and whether it is the current one, an old one, or missing from --notify-keys-file.",
		}, []string{"partition", "key", "use"}),
	}
	reg.MustRegister(r.sealed)
	return r
}

// Run passes through the addresses now and then, until ctx is done.
func (r *Resealer) Run(ctx context.Context) error {
	for wait := again; ; wait = min(2*wait, every) {
		if r.pass(ctx) {
			wait = every
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// Ready is an error while addresses of this node's partitions are sealed with a missing key: their alerts wait.
func (r *Resealer) Ready() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[byte]int{}
	for _, of := range r.missing {
		for key, n := range of {
			by[key] += n
		}
	}
	var faults []string
	for _, key := range slices.Sorted(maps.Keys(by)) {
		faults = append(faults, fmt.Sprintf("%d addresses are sealed with key %d, which notify-keys-file lacks: put it back, behind the current one", by[key], key))
	}
	if faults == nil {
		return nil
	}
	return errors.New(strings.Join(faults, "; "))
}

// pass passes through all partitions once; done: nothing is left to do.
func (r *Resealer) pass(ctx context.Context) (done bool) {
	done = true
	owned := map[int32]bool{}
	for _, w := range r.source.Watermarks() {
		if w.Role != topics.RoleOwner {
			continue
		}
		owned[w.Partition] = true
		by, err := r.partition(ctx, w.Partition)
		if err != nil {
			if done = false; ctx.Err() == nil {
				r.log.Warn("cannot reseal addresses", zap.Int32("partition", w.Partition), zap.Error(err))
			}
			continue
		}
		done = r.count(w.Partition, by) && done
	}
	r.forget(owned)
	return done && len(owned) > 0
}

// partition reseals the addresses of a partition, and counts them by the key that sealed them before.
func (r *Resealer) partition(ctx context.Context, partition int32) (by map[byte]int, err error) {
	by = map[byte]int{}
	for _, of := range []list{notifier.SealedAddresses, notifier.SealedRequests} {
		if err := r.all(ctx, partition, of, by); err != nil {
			return nil, err
		}
	}
	return by, nil
}

// all does the work of partition for the addresses of one list.
func (r *Resealer) all(ctx context.Context, partition int32, of list, by map[byte]int) error {
	for after := []byte(nil); ; {
		some, last, err := r.page(ctx, partition, of, after)
		if err != nil {
			return err
		}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(atOnce)
		for _, s := range some {
			key, has := r.keys.KeyOf(s.Text)
			if by[key]++; has && key != r.keys.Current() {
				g.Go(func() error { return r.reseal(ctx, s) })
			}
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if after = last; last == nil {
			return nil
		}
	}
}

func (r *Resealer) page(ctx context.Context, partition int32, of list, after []byte) ([]notifier.Sealed, []byte, error) {
	view, err := r.source.View(ctx, partition, nil)
	if err != nil {
		return nil, nil, err
	}
	defer view.Close()
	return of(view, after, page)
}

func (r *Resealer) reseal(ctx context.Context, s notifier.Sealed) error {
	address, err := r.keys.Open(s.Wallet, s.Channel, s.Text)
	if err != nil {
		r.log.Warn("a sealed address failed authentication", zap.Stringer("wallet", s.Wallet), zap.Stringer("channel", s.Channel))
		return nil //nolint:nilerr // another pass could not decrypt it either
	}
	cmd := notifier.Command{Reseal: &notifier.Reseal{Wallet: s.Wallet, Channel: s.Channel, Was: s.Text, Row: s.Row}}
	if cmd.Reseal.Sealed, err = r.keys.Seal(s.Wallet, s.Channel, address); err != nil {
		return err
	}
	rec, err := cmd.Record(r.cat, s.Wallet)
	if err == nil {
		_, err = r.producer.Send(ctx, rec)
	}
	return err
}

// count sets the gauges of a partition after a pass; done: all addresses are under the current key.
func (r *Resealer) count(partition int32, by map[byte]int) (done bool) {
	done = true
	missing := map[byte]int{}
	r.sealed.DeletePartialMatch(prometheus.Labels{"partition": fmt.Sprint(partition)})
	for key, n := range by {
		use := "old"
		switch _, has := r.keys.KeyOf([]byte{key}); {
		case key == r.keys.Current():
			use = "current"
		case !has:
			use, missing[key] = "missing", n
			r.log.Error("addresses are sealed with a key that notify-keys-file lacks: their alerts wait until it is put back",
				zap.Int32("partition", partition), zap.Uint8("key", key), zap.Int("addresses", n))
		default:
			done = false
		}
		r.sealed.WithLabelValues(fmt.Sprint(partition), fmt.Sprint(key), use).Set(float64(n))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing[partition] = missing
	return done
}

// forget forgets partitions that moved to another node.
func (r *Resealer) forget(owned map[int32]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for partition := range r.missing {
		if !owned[partition] {
			delete(r.missing, partition)
			r.sealed.DeletePartialMatch(prometheus.Labels{"partition": fmt.Sprint(partition)})
		}
	}
}
