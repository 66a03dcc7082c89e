package notifier_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// BenchmarkProcess: a million subscribers and 100,000 open deals at a process of facts, notifier and sender, on Apache Kafka.
// peak-MB and MB are its memory as the system sees it, at most and in the end; queued-ms is from the tick that makes 10,000
// alerts due until all are in their topic; mails/s are what its receiver gets then, of the 100 that the channel may send.
// LIENSTREAM_SUBSCRIBERS says how many.
func BenchmarkProcess(b *testing.B) {
	subscribers := uint64(1_000_000)
	if n, err := strconv.ParseUint(os.Getenv("LIENSTREAM_SUBSCRIBERS"), 10, 64); err == nil {
		subscribers = n
	}
	w := newTown(b, "apache", rand.New(rand.NewPCG(1, 1)))
	keys, err := notifier.ParseKeys(sealingKey)
	check(b, err)
	c := &crowd{b: b, cat: w.cat, tx: w.tx, sources: w.cat.Partitions}
	c.find()
	const now = genesis + 1000
	check(b, c.tx.Begin())
	for i := range subscribers {
		wallet := walletOf(i)
		sealed, err := keys.Seal(wallet, notifier.Email, fmt.Sprintf("a%d@example.com", i))
		check(b, err)
		c.put(wallet, &notifier.Command{Subscribe: &notifier.Subscribe{
			ID: notifier.ID{1}, Wallet: wallet, Channel: notifier.Email, Sealed: sealed, Mask: "a•••@example.com", Prefs: 0x1f, Unix: 1,
		}})
	}
	c.deals(now)
	c.flush()
	w.start("a")
	p := w.starts[0]
	fired := func() (n int) {
		topic, _ := w.cat.Find(topics.KindEvent, topics.FamilyAlert)
		for p := range w.cat.Partitions {
			check(b, kafka.ReadBack(b.Context(), w.cfg, topic.Name(), p, 0, func(*kafka.Record) bool { n++; return true }))
		}
		return n
	}
	c.tick(now + 1)
	reached := func(at uint64) func() error {
		return func() error {
			if n := w.clocks(at); n < int(w.cat.Partitions) {
				return fmt.Errorf("%d partitions have applied it", n)
			}
			return nil
		}
	}
	polltest.Within(b, 10*time.Minute, reached(now+1))
	for b.Loop() { // once: it takes long enough
		began := time.Now()
		c.tick(now + hour)
		polltest.Within(b, time.Minute, func() error {
			if n := fired(); n != dueAtOnce {
				return fmt.Errorf("%d are queued", n)
			}
			return nil
		})
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "queued-ms")
		came := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.came)
		}
		polltest.Until(b, "mails arrive", func() bool { return came() > 100 })
		from, since := came(), time.Now()
		polltest.Within(b, time.Minute, func() error {
			if time.Since(since) < 10*time.Second {
				return fmt.Errorf("%d have come", came())
			}
			return nil
		})
		b.ReportMetric(float64(came()-from)/time.Since(since).Seconds(), "mails/s")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	check(b, err)
	for unit, name := range map[string]string{"peak-MB": "VmHWM:", "MB": "VmRSS:"} {
		_, line, _ := bytes.Cut(status, []byte(name))
		kB, err := strconv.Atoi(string(bytes.Fields(line)[0]))
		check(b, err)
		b.ReportMetric(float64(kB)/1000, unit)
	}
}

// clocks counts the partitions whose changelog says that they have applied a tick of that time.
func (w *town) clocks(at uint64) (n int) {
	text := fmt.Appendf(nil, `"time":%d`, at)
	for p := range w.cat.Partitions {
		found := false
		check(w.t, kafka.ReadBack(w.t.Context(), w.cfg, w.cat.Changelog(topics.AppNotifier), p, 1000, func(r *kafka.Record) bool {
			found = bytes.Contains(r.Value, text)
			return !found
		}))
		if found {
			n++
		}
	}
	return n
}
