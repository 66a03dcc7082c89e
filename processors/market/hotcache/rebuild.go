package hotcache

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/market/deals"
)

// rebuild rewrites a partition from a view. It does nothing while a newer owner is alive, because an outdated
// owner's state is older.
func (w *Writer) rebuild(ctx context.Context, job *work, s *written) error {
	view, ok := w.view(ctx, job)
	if !ok {
		return nil
	}
	defer view.Close()
	found, err := w.found(ctx, job.owner.ID)
	if err != nil {
		return err
	}
	if w.refuses(found, s, time.Now()) {
		w.metrics.writes.WithLabelValues("refused").Inc()
		w.pending.putBack(job) // without waking: the next heartbeat retries
		return nil
	}
	w.metrics.rebuilds.WithLabelValues(job.rebuild).Inc()
	return w.replace(ctx, job, s, found, true, func(put func(entry) error) error {
		var bad error
		err := view.ScanIndex(deals.IndexListing+byte(deals.SortNewest), nil, nil, func(position, _ []byte) bool {
			var e entry
			key := append([]byte(nil), position[len(position)-dealKeyBytes:]...)
			if e, bad = load(view, job.owner.ID, key, w.pending.expiredBefore(job.at.Timestamp)); bad == nil && len(e.row) > 0 {
				bad = put(e)
			}
			return bad == nil
		})
		return errors.Join(bad, err)
	})
}

// refuses reports whether a newer owner wrote that state and is not known to be silent.
func (w *Writer) refuses(found string, s *written, now time.Time) bool {
	newest, ok := owner(found)
	if !ok || newest <= s.incarnation {
		return false
	}
	if found != s.refused {
		s.refused, s.refusedSince = found, now
	}
	return now.Sub(s.refusedSince) < w.cfg.Takeover
}

// found is the partition's state in Redis; empty: none.
func (w *Writer) found(ctx context.Context, partition int32) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
	defer cancel()
	found, err := w.client.HGet(ctx, w.keys.meta, strconv.Itoa(int(partition))).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return "", fmt.Errorf("read state of partition %d: %w", partition, err)
	}
	return found, nil
}

// replace writes too many rows for one script: readers reject the partition until the last one is written. It
// gives up if another writer changes the state.
func (w *Writer) replace(
	ctx context.Context, job *work, s *written, from string, anew bool, rows func(put func(entry) error) error,
) error {
	b := &write{partition: job.owner.ID, state: s, from: from, job: job}
	step := func(to string) error {
		b.to = to
		if err := w.run(ctx, []*write{b})[0]; err != nil {
			return err
		}
		w.metrics.rows.Add(float64(len(b.entries)))
		b.from, b.entries = to, b.entries[:0]
		return nil
	}
	err := step(w.building(job))
	if err == nil && anew {
		err = w.clear(ctx, job, b, step)
	}
	if err == nil {
		err = rows(func(e entry) error {
			if b.entries = append(b.entries, e); len(b.entries) < w.cfg.ChunkRows {
				return nil
			}
			return step(w.building(job))
		})
	}
	if err == nil {
		b.barrier, b.keep = barrier(job.at), 1
		err = step(w.ready(job))
	}
	if errors.Is(err, errMismatch) {
		w.metrics.writes.WithLabelValues("mismatch").Inc()
		w.lost(job.owner.ID, s, "mismatch")
		return nil
	}
	if err != nil {
		return fmt.Errorf("rebuild partition %d: %w", job.owner.ID, err)
	}
	w.wrote(b)
	return nil
}

// clear removes the partition's rows and members from Redis.
func (w *Writer) clear(ctx context.Context, job *work, b *write, step func(string) error) error {
	for {
		read, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
		keys, err := w.client.HRandField(read, w.keys.rows+strconv.Itoa(int(job.owner.ID)), w.cfg.ChunkRows).Result()
		cancel()
		if err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("list rows: %w", err)
		}
		if len(keys) == 0 {
			return nil
		}
		for _, key := range keys {
			b.entries = append(b.entries, entry{key: []byte(key)})
		}
		if err := step(w.building(job)); err != nil {
			return err
		}
	}
}

// sweep finds listings that expired long ago, so that they do not accumulate before the valid ones.
func (w *Writer) sweep(ctx context.Context) error {
	var now uint64
	owned := make(map[int32][][]byte)
	for _, id := range w.pending.owned() {
		owned[id] = nil
		now = max(now, w.pending.timestamp(id))
	}
	before := w.pending.expiredBefore(now)
	if before == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
	defer cancel()
	order := w.keys.orders + strconv.Itoa(int(deals.SortExpiry)) + ":a"
	members, err := w.client.ZRangeByLex(ctx, order, &redis.ZRangeBy{
		Min: "-", Max: "(" + string(binary.BigEndian.AppendUint64(nil, before)), Count: int64(w.cfg.ChunkRows),
	}).Result()
	if err != nil {
		return fmt.Errorf("scan for expired listings: %w", err)
	}
	position := positionBytes[deals.SortExpiry]
	for _, m := range members {
		if len(m) < position+2 {
			continue
		}
		id := int32(binary.BigEndian.Uint16([]byte(m[position:])))
		if _, ok := owned[id]; ok {
			owned[id] = append(owned[id], []byte(m[position-dealKeyBytes:position]))
		}
	}
	for id, keys := range owned {
		if len(keys) > 0 {
			w.pending.expired(id, keys)
		}
	}
	return nil
}

// checkEviction warns if Redis may evict keys: a page could then lack a whole order. Readers detect that by the
// counts in meta, but everything must be rebuilt.
func (w *Writer) checkEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.WriteTimeout)
	defer cancel()
	info, err := w.client.Info(ctx, "memory").Result()
	if err != nil {
		w.log.Debug("read memory policy of redis", zap.Error(err)) // the embedded Redis has no such setting
		return
	}
	w.metrics.evictions.Set(0)
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		policy, ok := strings.CutPrefix(lines.Text(), "maxmemory_policy:")
		if ok && policy != "noeviction" {
			w.metrics.evictions.Set(1)
			w.log.Warn("redis may evict listings: set maxmemory-policy to noeviction", zap.String("policy", policy))
		}
	}
}
