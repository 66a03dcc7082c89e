package system

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// What a soak promises of all its reads together.
const (
	soakOutage  = 2 * time.Second // the longest
	soakInVain  = 1e-3            // share of the reads
	soakPasses  = 2 * time.Second // a fault lasts, and blocks come
	soakRecover = time.Minute     // after a fault everything is as before
)

// soaked is the fleet of a soak: three brokers, three processor nodes, two ingesters, two serving nodes.
type soaked struct {
	*fleet
	kafka    *brokertest.Cluster
	services map[string]*api
}

// fault is something that happens to the fleet. strike returns what heals it, and the service that is not read meanwhile.
type fault struct {
	name   string
	strike func(t *testing.T, s *soaked, r *rand.Rand) (heal func(t *testing.T), spared string)
}

// TestSoak lets faults of each kind happen to a whole fleet for LIENSTREAM_SOAK_FOR. No answer is wrong or goes back, few
// reads fail, and none for long; in the end the state is the chain's and no topic has a gap or anything twice.
func TestSoak(t *testing.T) {
	text := os.Getenv("LIENSTREAM_SOAK_FOR")
	if text == "" {
		t.Skip("three brokers of Apache Kafka and seven nodes for minutes: make soak, make soak-short")
	}
	span, err := time.ParseDuration(text)
	if err != nil || span <= 0 {
		t.Fatalf("LIENSTREAM_SOAK_FOR: %q is not a duration such as 15m", text)
	}
	seed := seed(t)
	t.Logf("LIENSTREAM_SEED=%d", seed)
	s := newSoaked(t, seed)
	rows := map[string]*soakRow{}
	r := rand.New(rand.NewPCG(seed, 1))
	faults := soakFaults()
	for began, n := time.Now(), 0; time.Since(began) < span || n < len(faults); n++ {
		if n%len(faults) == 0 {
			r.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		f := &faults[n%len(faults)]
		if rows[f.name] == nil {
			rows[f.name] = &soakRow{}
		}
		s.suffer(t, f, r, rows[f.name])
	}
	s.whole(t)
	topicsEqualChain(t, s.w)
	soakTable(t, faults, rows)
}

func newSoaked(t *testing.T, seed uint64) *soaked {
	t.Helper()
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed, TxsPerBlock: 4, TimePerBlock: time.Hour})
	s := &soaked{kafka: w.onKafkaCluster(t)}
	w.mine(t.Context(), t, 160) // more than may be reverted: something is final
	s.fleet = newFleet(t, w)
	s.join(t, "ingest-0", "ingest", "--ingest-standby")
	s.join(t, "ingest-1", "ingest", "--ingest-standby")
	for _, name := range []string{"a", "b", "c"} {
		s.processors(t, name, "--session-timeout=3s")
	}
	s.serving(t)
	addr := address(t)
	s.join(t, "serving-2", "serving", "--services=indexer", "--indexer-addr="+addr)
	s.services = map[string]*api{"serving": s.api, "serving-2": newAPI(addr)}
	s.whole(t)
	s.recovered(t)
	return s
}

// recovered waits until every node works again, and all services show a new block.
func (s *soaked) recovered(t *testing.T) {
	t.Helper()
	s.balanced(t, "a", "b", "c")
	s.ingesters(t)
	s.kafka.InSync(t, "")
	s.w.shown(t, soakRecover, s.services["serving"], s.services["serving-2"])
	s.followed(t)
}

// followed waits until every partition has an owner and a standby at the chain's head.
func (s *soaked) followed(t *testing.T) {
	t.Helper()
	head, err := s.w.judge.eth.BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	polltest.Within(t, soakRecover, func() error {
		sum := 0.0
		for _, name := range []string{"a", "b", "c"} {
			blocks, err := s.nodes[name].metric(t.Context(), "lienstream_processors_block_number", ofMarket)
			if err != nil {
				return err
			}
			sum += blocks
		}
		if want := float64(2 * partitions * head); sum < want {
			return fmt.Errorf("nodes are at blocks that add up to %v, an owner and a standby of each partition would be %v", sum, want)
		}
		return nil
	})
}

// suffer strikes with a fault and heals it, while blocks are mined and services are read.
func (s *soaked) suffer(t *testing.T, f *fault, r *rand.Rand, row *soakRow) {
	t.Helper()
	readers := map[string]*reader{}
	for name, service := range s.services {
		readers[name] = readOn(t, service, "/deals?limit=200", "/listings?limit=200&sort=cost", "/deals/7")
	}
	stop := s.w.load(t, 200*time.Millisecond)
	readers["serving"].sees(t, 2)
	heal, spared := f.strike(t, s, r)
	if spared != "" { // who is read from it asks another
		readers[spared].cancel()
	}
	<-time.After(soakPasses)
	heal(t)
	for name, rd := range readers {
		if name != spared {
			rd.sees(t, 2)
		}
	}
	stop()
	s.recovered(t)
	row.times++
	for name, rd := range readers {
		if name == spared {
			continue
		}
		row.longest = max(row.longest, rd.stop(t, f.name+", read by "+name))
		row.reads, row.failed, row.backwards = row.reads+rd.reads, row.failed+rd.failed, row.backwards+rd.backwards
		rd.judge(t.Context(), t, s.w.judge)
	}
}

// soakFaults are the kinds of faults.
func soakFaults() []fault {
	processor := func(r *rand.Rand) string { return []string{"a", "b", "c"}[r.IntN(3)] }
	server := func(r *rand.Rand) string { return []string{"serving", "serving-2"}[r.IntN(2)] }
	node := func(s *soaked, r *rand.Rand) *broker.Apache { return s.kafka.Nodes[r.IntN(len(s.kafka.Nodes))] }
	killed := func(s *soaked, name string) func(*testing.T) {
		s.nodes[name].kill()
		return func(*testing.T) { s.restart(name) }
	}
	frozen := func(s *soaked, name string) func(*testing.T) {
		s.nodes[name].pause()
		return func(*testing.T) { s.nodes[name].resume() }
	}
	return []fault{
		{"processors killed", func(_ *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			return killed(s, processor(r)), ""
		}},
		{"processors frozen", func(_ *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			return frozen(s, processor(r)), ""
		}},
		{"processors' disk lost", func(t *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			name := processor(r)
			heal := killed(s, name)
			for _, arg := range s.nodes[name].args {
				if dir, ok := strings.CutPrefix(arg, "--data-dir="); ok && strings.HasPrefix(dir, os.TempDir()) {
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
				}
			}
			return heal, ""
		}},
		{"broker killed", func(_ *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			n := node(s, r)
			n.Kill()
			return func(t *testing.T) { restart(t, n) }, ""
		}},
		{"broker frozen", func(_ *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			thaw := freeze(s.kafka, node(s, r), 1)
			return func(*testing.T) { thaw() }, ""
		}},
		{"two brokers frozen", func(_ *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			thaw := freeze(s.kafka, node(s, r), 2)
			return func(*testing.T) { thaw() }, ""
		}},
		{"ingester killed", func(t *testing.T, s *soaked, _ *rand.Rand) (func(*testing.T), string) {
			active, _ := s.ingesters(t)
			return killed(s, active.name), ""
		}},
		{"ingester frozen", func(t *testing.T, s *soaked, _ *rand.Rand) (func(*testing.T), string) {
			active, _ := s.ingesters(t)
			return frozen(s, active.name), ""
		}},
		{"serving killed", func(_ *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			name := server(r)
			return killed(s, name), name
		}},
		{"serving frozen", func(_ *testing.T, s *soaked, r *rand.Rand) (func(*testing.T), string) {
			name := server(r)
			return frozen(s, name), name
		}},
	}
}

// soakRow sums up the reads during a kind of fault.
type soakRow struct {
	times, reads, failed, backwards int
	longest                         time.Duration
}

// soakTable prints a row a fault, and fails where reads failed too often or for too long.
func soakTable(t *testing.T, faults []fault, rows map[string]*soakRow) {
	t.Helper()
	var (
		out strings.Builder
		all soakRow
	)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	line := func(name string, r *soakRow) {
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%v\n", name, r.times, r.reads, r.failed, r.backwards, r.longest.Round(time.Millisecond))
	}
	_, _ = fmt.Fprintln(table, "fault\ttimes\treads\tfailed\tbackwards\tlongest outage")
	for i := range faults {
		r := rows[faults[i].name]
		line(faults[i].name, r)
		all.times, all.reads, all.failed, all.backwards = all.times+r.times, all.reads+r.reads, all.failed+r.failed, all.backwards+r.backwards
		all.longest = max(all.longest, r.longest)
	}
	line("all", &all)
	_ = table.Flush()
	t.Logf("state equals chain, no answer of those that were judged is wrong, no topic has a gap or anything twice\n%s", out.String())
	if all.backwards > 0 || all.longest > soakOutage || float64(all.failed) > soakInVain*float64(all.reads) {
		t.Errorf("%d reads went back, %d of %d failed, one took %v", all.backwards, all.failed, all.reads, all.longest)
	}
}
