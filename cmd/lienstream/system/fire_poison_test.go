package system

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestPoison gives the pipeline unreadable input: logs of the market's contracts and of others, records of the raw
// topic, and a changelog that ends in half a commit. Each is counted, kept and reported, and stops no more than it must:
// no process restarts.
func TestPoison(t *testing.T) {
	w := newWorld(t, "anvil", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 6, TimePerBlock: 6 * time.Hour})
	broker := w.onKafka(t)
	w.onRedis(t)
	w.mine(t.Context(), t, 60)
	f := newFleet(t, w)
	f.join(t, "ingest", "ingest")
	f.processors(t, "a")
	f.serving(t)
	f.whole(t)
	forger := newForger(t, w, broker.Addrs())

	t.Run("logs", func(t *testing.T) { f.poisonLogs(t); f.whole(t) })
	t.Run("raw records", func(t *testing.T) {
		f.poisonRaw(t, forger)
		f.whole(t)
		// The ingester reads them back too.
		forger.write(foreign(forger.catalogue.Raw())...)
		f.restart("ingest")
		w.mine(t.Context(), t, 5)
		f.whole(t)
		if n := f.nodes["ingest"].count(t, "lienstream_ingest_unknown_records_total"); n < 3 {
			t.Errorf("the ingester counted %v records that it could not read", n)
		}
	})
	w.topicsEqual(t, false) // nothing is final yet
	f.unharmed(t, "ingest", "a", "serving")
	t.Run("changelog", func(t *testing.T) { f.poisonChangelog(t, forger); f.whole(t) })
	w.mine(t.Context(), t, 10)
	f.whole(t)
	w.topicsEqual(t, false) // nothing is final yet
	for _, name := range []string{"serving", "a", "ingest"} {
		f.nodes[name].interrupt(t)
	}
}

// tally is a metric, 0 where it has no series yet.
func (m *member) tally(ctx context.Context, name string, labels ...string) (float64, error) {
	if _, err := m.metric(ctx, "process_start_time_seconds"); err != nil {
		return 0, err
	}
	n, _ := m.metric(ctx, name, labels...)
	return n, nil
}

func (m *member) count(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	n, err := m.tally(t.Context(), name, labels...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// stops waits until so many tasks of a node have stopped.
func (m *member) stops(t *testing.T, tasks int) {
	t.Helper()
	polltest.Within(t, time.Minute, func() error {
		n, err := m.tally(t.Context(), "lienstream_processors_stopped")
		if err == nil && n != float64(tasks) {
			err = fmt.Errorf("%v tasks of %s are stopped, want %d", n, m.name, tasks)
		}
		return err
	})
}

// tells waits until `lienstream status`, to which nodes report every second, says something of each partition.
func (f *fleet) tells(t *testing.T, format, cure string, partitions ...int) {
	t.Helper()
	polltest.Within(t, 30*time.Second, func() error {
		table, err := try(t, append([]string{"status", "--log-level=error"}, f.w.servers...)...)
		if err != nil {
			return err
		}
		for _, p := range partitions {
			if !strings.Contains(table, fmt.Sprintf(format, p)) || !strings.Contains(table, cure) {
				return fmt.Errorf("status does not tell of partition %d:\n%s", p, table)
			}
		}
		return nil
	})
}

// unharmed checks that these nodes are the same processes as before, and none of their tasks restarted.
func (f *fleet) unharmed(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		m := f.nodes[name]
		select {
		case <-m.done:
			t.Fatalf("%s has ended: %v", name, m.err)
		default:
		}
		for metric, most := range map[string]float64{
			"lienstream_processors_restarts_total": 0, "lienstream_processors_stopped": 0,
			"lienstream_ingest_sessions_failed_total": 3, // a broker that has just come up takes no producer yet
		} {
			if n := m.count(t, metric); n > most {
				t.Errorf("%s: %s is %v", name, metric, n)
			}
		}
	}
}

// poisonLogs has every contract that the ingester follows emit malformed logs, and strangers emit tokens' events.
func (f *fleet) poisonLogs(t *testing.T) {
	const counter = "lienstream_processors_unknown_logs_total"
	d, a := f.w.market.Deployment, f.nodes["a"]
	before := a.count(t, counter)
	s := newScribe(t, f.w)
	var emitted []string
	emit := func(contract common.Address, logs [][]byte) {
		for _, l := range s.emit(t, contract, logs...) {
			emitted = append(emitted, fmt.Sprint(lowerHash(l.BlockHash), " ", l.Index))
		}
	}
	emit(d.PoolManager, malformed(
		"Initialize(bytes32,address,address,uint24,int24,address,uint160,int24)",
		"ModifyLiquidity(bytes32,address,int24,int24,int256,bytes32)",
		"Swap(bytes32,address,int128,int128,uint160,uint128,int24,uint24)"))
	emit(d.PositionManager, malformed("Transfer(address,address,uint256)"))
	for name, contract := range map[string]common.Address{
		"DealVault": d.DealVault, "AssetRegistry": d.AssetRegistry, "EpochController": d.EpochController,
		"RewardDistributor": d.RewardDistributor, "LiquidityStaking": d.LiquidityStaking, "Burner": d.Burner,
	} {
		emit(contract, malformed(signatures(t, name)...))
	}
	own := len(emitted)
	// Only tokens' events are followed of a stranger: the last two of its logs are ignored.
	strangers := malformed("UIMultiplierUpdated(uint256,uint256,uint256)", "Paused(address)", "Unpaused(address)")
	emit(s.at, strangers)
	emitted = emitted[:len(emitted)-2]
	f.serves(t)
	if n := a.count(t, counter) - before; n != float64(len(emitted)) {
		t.Errorf("%v logs were counted as unknown, %d were emitted", n, len(emitted))
	}
	f.w.mine(t.Context(), t, 1) // in whose state every contract has its code again
	for _, reason := range []string{contracts.ReasonAnonymous, contracts.ReasonSignature, contracts.ReasonTopics, contracts.ReasonData} {
		if a.count(t, counter, `reason="`+reason+`"`) == 0 {
			t.Errorf("none was counted for %s", reason)
		}
	}
	if !a.says("skipped a log that no event matches") {
		t.Error("a log that is not what it claims is not told of")
	}
	kept := map[string]bool{}
	for _, r := range records(t, f.w, "raw.logs") {
		if r.Value != nil && r.Value.Fields["log_index"] != nil {
			kept[fmt.Sprint(r.Value.Fields["block_hash"], " ", r.Value.Fields["log_index"])] = true
		}
	}
	for _, l := range emitted {
		if !kept[l] {
			t.Fatalf("the raw topic lacks log %s", l)
		}
	}
	t.Logf("%d logs of the market's contracts and %d of a stranger", own, len(emitted)-own)
}

// foreign are records that are not ours, with the key of a log and without.
func foreign(topic string) (all []*kafka.Record) {
	for p := range int32(partitions) {
		for _, r := range []*kafka.Record{
			{Key: []byte("deal:7"), Value: []byte{0, 0, 9, 9, 9, 1}}, // of a schema that is not ours
			{Key: []byte("deal:7"), Value: nil},
			{Value: []byte(`{"block": 7}`)},
		} {
			r.Topic, r.Partition = topic, p
			all = append(all, r)
		}
	}
	return all
}

// poisonRaw writes records between those of the ingester, within its blocks and outside.
func (f *fleet) poisonRaw(t *testing.T, forger *forger) {
	const counter = "lienstream_processors_unknown_records_total"
	a, topic := f.nodes["a"], forger.catalogue.Raw()
	before, written := a.count(t, counter), 0
	stop := f.w.load(t, 20*time.Millisecond)
	for range 20 {
		records := foreign(topic)
		written += len(records)
		forger.write(records...)
	}
	stop()
	f.serves(t)
	polltest.Within(t, 30*time.Second, func() error {
		if n := a.count(t, counter) - before; n != float64(written) {
			return fmt.Errorf("%v records were counted as unknown, %d were written", n, written)
		}
		return nil
	})
	if !a.says("skipped a raw record that cannot be decoded") {
		t.Error("a record that nobody can read is not told of")
	}
	kept := 0
	for _, r := range records(t, f.w, "raw.logs") {
		if r.Value == nil {
			kept++
		}
	}
	if kept != written {
		t.Errorf("%d records without a meaning are in the raw topic, %d were written", kept, written)
	}
}

// poisonChangelog ends two partitions of a changelog in half a commit: an earlier version of a row without
// progress after it, and a truncated record. The changelog then no longer determines the rows, so the tasks stop, and
// say why and what to do. A rebuild repairs them.
func (f *fleet) poisonChangelog(t *testing.T, forger *forger) {
	a := f.nodes["a"]
	a.interrupt(t)
	half, torn := forger.former(3), forger.former(5)
	torn.Value = torn.Value[:len(torn.Value)/2]
	forger.write(half, torn)
	f.restart("a")
	a.stops(t, 2)
	for _, p := range []int{3, 5} {
		if n := a.count(t, "lienstream_processors_restarts_total", `reason="changelog"`, fmt.Sprintf(`partition="%d"`, p)); n != 1 {
			t.Errorf("partition %d was wiped and restored %v times", p, n)
		}
	}
	a.holds(t, time.Minute, "owner", partitions)
	const cure = "rebuild with `lienstream processors --rebuild`"
	if !a.says("task stopped") || !a.says(cure) {
		t.Error("the log does not tell what stopped the tasks, and what to do")
	}
	f.tells(t, "partition %d is stopped on a: ", cure, 3, 5)
	// A new question: earlier answers as of this block may be cached.
	if res, err := f.api.get(t.Context(), "/deals?limit=197"); err != nil || res.Status != http.StatusServiceUnavailable {
		t.Errorf("without two partitions: %d as of %s, %v", res.Status, res.Number, err)
	}
	a.stops(t, 2) // still: they have not begun anew meanwhile
	forger.keeps(half)
	forger.keeps(torn)
	a.interrupt(t)
	f.restart("a", "--rebuild")
	f.w.mine(t.Context(), t, 1) // what is answered as of it, only the rebuilt partitions can tell
	f.serves(t)
	f.restart("a") // and what was rebuilt is what is restored
	a.holds(t, time.Minute, "owner", partitions)
}
