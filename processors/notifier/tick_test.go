package notifier

import (
	"encoding/binary"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// BenchmarkTick: a tick by which 10,000 of 100,000 deals are due an alert each, with as many subscriptions, and its commit. It is
// what one core has to do of a block, apart from Kafka; cpu-ms is the processor's time, whatever else the machine does.
func BenchmarkTick(b *testing.B) {
	const subscribed, due = 100_000, 10_000
	fail := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	wallet := func(i int) common.Address {
		return common.BytesToAddress(crypto.Keccak256(binary.BigEndian.AppendUint64(nil, uint64(i))))
	}
	var spent time.Duration
	used := func() time.Duration {
		var u syscall.Rusage
		fail(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	n := 0
	for b.Loop() {
		n++
		b.StopTimer()
		app := New(1, prometheus.NewRegistry())
		store, err := state.Open(state.Options{Dir: b.TempDir(), Tables: app.Tables(), FS: vfs.Default})
		fail(err)
		at := time.Now()
		blocks := uint64(0)
		o := store.NewOverlay()
		do := func(c Command) {
			value, err := c.Encode()
			fail(err)
			release := o.ShareIterator() // as the engine does
			fail(app.ApplyCommand(o, engine.Command{Value: value, Time: at}))
			fail(release())
		}
		commit := func() {
			fail(store.Commit(o, binary.BigEndian.AppendUint64(nil, blocks)))
			blocks++
			o = store.NewOverlay()
			o.Begin(topics.BlockRef{Number: blocks}, false)
		}
		o.Begin(topics.BlockRef{}, false)
		for i := range subscribed {
			who := wallet(i)
			do(Command{Subscribe: &Subscribe{Wallet: who, Channel: Email, Sealed: make([]byte, 48), Mask: "a•••@example.com", Prefs: 0x1f, Unix: 1}})
			expiry := uint64(2_000_000_000)
			if i >= due {
				expiry += 1_000_000
			}
			do(Command{Fact: &Fact{Wallet: who, Deal: Deal{
				ID: fmt.Sprint(i), Borrower: who, Lender: common.Address{1}, Token: common.Address{2}, Amount: "1000000000000000000", Cap: "1000000",
				Price: "900000", FundedAt: 1_900_000_000, Expiry: expiry, GraceEnd: expiry + 86400, Open: true,
			}}})
			if i%10_000 == 9_999 {
				commit()
			}
		}
		tick := Command{Tick: &Tick{Time: 2_000_000_000 - 3600}}
		before := used()
		b.StartTimer()
		do(tick)
		commit()
		b.StopTimer()
		spent += used() - before
		t, err := getTally(o)
		fail(err)
		if t.Pending != due {
			b.Fatalf("%d are pending", t.Pending)
		}
		fail(store.Close())
		b.StartTimer()
	}
	b.ReportMetric(float64(spent.Milliseconds())/float64(n), "cpu-ms/op")
}
