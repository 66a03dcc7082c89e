package simulation

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/redis/go-redis/v9/logging"
)

var (
	seedFlag = flag.Uint64("sim.seed", 0, "seed of the first run; 0: by the clock")
	runsFlag = flag.Int("sim.runs", 0, "runs, each with the next seed; 0: as many as the time is enough for")
	timeFlag = flag.Duration("sim.time", time.Minute, "of fresh seeds")
	calmFlag = flag.Bool("sim.calm", false, "no faults")
	onlyFlag = flag.String("sim.faults", "", "kinds of faults, comma-separated; empty: all")
	oneFlag  = flag.Bool("sim.first", false, "end with the first finding")
	tellFlag = flag.Bool("sim.story", false, "tell what happens")
	wireFlag = flag.String("sim.wire", "", "file that gets a line for each write to a connection of the last run: where the files of two runs begin to differ, the runs do")
)

// TestMain keeps go-redis from logging by itself, as the binary does.
func TestMain(m *testing.M) {
	logging.Disable()
	m.Run()
}

// world is what all runs share.
var world = sync.OnceValues(func() (*recording, error) { return recordWorld(nil) })

// recordWorld records it, the same each time.
func recordWorld(also func(context.Context, *rpc.Client, *recording, *types.Header) error) (*recording, error) {
	r := &recording{also: also}
	return r, r.record(context.Background(), 1, ends[len(ends)-1]+2*reorgDepth, "../../../contracts/node_modules")
}

// judge is a recording and its oracle.
func judge(t *testing.T) (*recording, *oracle) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long")
	}
	if judged.oracle == nil && *oracleFlag != "" {
		var err error
		if judged.recording, judged.oracle, err = kept(*oracleFlag); err != nil {
			t.Fatal(err)
		}
	}
	if judged.oracle != nil {
		return judged.recording, judged.oracle
	}
	rec, err := world()
	if err != nil {
		t.Fatal(err)
	}
	o, err := newOracle(rec)
	if err != nil {
		t.Fatal(err)
	}
	for partitions, all := range map[int32]bool{manyPartitions: true, fewPartitions: false} {
		inBubble(t, func(t *testing.T) {
			if err := o.ask(t.Context(), rec, partitions, all, &story{}); err != nil {
				t.Fatalf("the oracle: %v", err)
			}
		})
	}
	rec.states.fill(rec.blocks)
	if err := rec.states.close(); err != nil {
		t.Fatal(err)
	}
	if *oracleFlag != "" {
		if err := keep(*oracleFlag, rec, o); err != nil {
			t.Fatal(err)
		}
	}
	judged.recording, judged.oracle = rec, o
	return rec, o
}

// judged is what all runs of a process are judged by.
var judged struct {
	*recording
	*oracle
}

// inBubble runs f in virtual time. It empties sync.Pools before: Pebble keeps buffers with channels there, which belong
// to the bubble that made them.
func inBubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	emptyPools()
	synctest.Test(t, f)
}

// bubbled is how a stack's first line names the bubble of its goroutine.
var bubbled = regexp.MustCompile(`synctest bubble \d+`)

// leavesNothing runs f in virtual time. An error says which goroutines are left when f has ended, and never will: the runs that
// follow are none the worse for them.
func leavesNothing(t *testing.T, f func(*testing.T)) (err error) {
	t.Helper()
	name := ""
	defer func() {
		end := recover()
		if end == nil {
			return
		}
		if !strings.HasPrefix(fmt.Sprint(end), "deadlock") {
			panic(end)
		}
		left, stacks := map[string]int{}, make([]byte, 16<<20)
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if head, rest, _ := strings.Cut(stack, "\n"); bubbled.FindString(head) == name {
				by := strings.LastIndex(rest, "created by ")
				where, _, _ := strings.Cut(rest[max(by, 0):], " in goroutine")
				left[where]++
			}
		}
		err = fmt.Errorf("%v: %v", end, left)
	}()
	inBubble(t, func(t *testing.T) {
		stack := make([]byte, 256)
		name = bubbled.FindString(string(stack[:runtime.Stack(stack, false)]))
		f(t)
	})
	return nil
}

// tally sums up runs.
type tally struct {
	runs, found, requests, errors int
	values, blocks                int
	events, alerts, compactions   int
	resumes, resets               int
	cached, stuck                 int
	rows, pages, apart            int
	reports, tickets, uncharged   int
	faults, crashes               map[string]int
	virtual, healed, outage, age  time.Duration
	began                         time.Time
	cpu                           time.Duration // that the process had used by then
}

// cpuTime is what the process has used of all cores: on a machine that others use too, runs are counted by it.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// longestRun is how long a run may take of real time: in one in which virtual time stands, no other timeout is ever over.
const longestRun = 10 * time.Minute

// optionsOf are what a seed and flags ask for.
func optionsOf(seed uint64) (opt options, err error) {
	opt = defaultOptions()
	if opt.calm = *calmFlag || seed%16 == 9 || seed%28 == 1; seed%2 == 1 { // some are without faults: what holds of a quiet system holds throughout; 1: with alerts
		opt.alone, opt.pause = true, 3*time.Second
	}
	if *onlyFlag != "" {
		opt.faults = strings.Split(*onlyFlag, ",")
	}
	switch seed % 6 { // each partition and each broker takes part in everything, and most faults need few
	case 0, 1:
		opt.brokers = 3
	case 2, 3:
		opt.partitions = manyPartitions
	}
	opt.liar = seed%5 == 0 || strings.Contains(*onlyFlag, "chain node")
	opt.sparse = opt.liar && seed%10 == 5
	opt.forger = seed%20 == 4 || seed%20 == 11 || strings.Contains(*onlyFlag, "forges") // 11: one thing at a time, with values
	if seed%4 < 2 {
		opt.tipCommit = time.Second // several blocks share a commit
	}
	opt.redis = seed%3 == 0 || strings.Contains(*onlyFlag, redisHost)
	opt.valuation = seed%5 < 2 // 0: with a node that lies
	opt.agent = opt.valuation
	if seed%5 == 3 {
		opt.restored = restoredSteps
	}
	opt.reports = seed%7 == 2 || strings.Contains(*onlyFlag, "payment") || strings.Contains(*onlyFlag, "facilitator")
	opt.alerts = seed%7 < 2 || strings.Contains(*onlyFlag, telegramHost)
	opt.long = opt.alerts && seed%14 == 7 // one thing at a time
	opt.kinds, err = kindsOf(opt)
	return opt, err
}

// simulated is a run in virtual time. cannot: it did not come to its end; left: it leaves goroutines.
func simulated(t *testing.T, rec *recording, o *oracle, seed uint64, opt options, tell *story) (res result, cannot, left error) {
	t.Helper()
	left = leavesNothing(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, seed)
		res, cannot = simulate(t.Context(), rec, o, seed, opt, tell)
	})
	return res, cannot, left
}

// runSeed runs a seed and reports what it found.
func (y *tally) runSeed(t *testing.T, seed uint64) {
	t.Helper()
	rec, o := judge(t)
	opt, err := optionsOf(seed)
	if err != nil {
		t.Fatal(err)
	}
	y.runs++
	tell := &story{}
	if *tellFlag {
		tell.out = os.Stderr
	}
	if *wireFlag != "" {
		tell.wire = new(bytes.Buffer)
	}
	overdue := time.AfterFunc(longestRun, func() { panic(fmt.Sprintf("seed %d does not end", seed)) })
	defer overdue.Stop()
	res, cannot, left := simulated(t, rec, o, seed, opt, tell)
	for kind, err := range map[string]error{"cannot run": cannot, "leaves goroutines": left} {
		if err != nil {
			res.add(kind, err.Error())
		}
	}
	t.Logf("seed %d: trace %x", seed, res.trace)
	if tell.wire != nil {
		if err := os.WriteFile(*wireFlag, tell.wire.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	}
	y.requests, y.errors, y.virtual = y.requests+res.requests, y.errors+res.errors, y.virtual+res.took
	y.events, y.resumes, y.resets = y.events+res.events, y.resumes+res.resumes, y.resets+res.resets
	y.blocks += res.blocks
	y.values, y.alerts = y.values+res.values, y.alerts+res.alerts
	y.reports, y.tickets = y.reports+res.reports, y.tickets+res.tickets
	y.uncharged += res.uncharged
	y.cached += res.cached
	y.rows, y.pages, y.apart = y.rows+res.rows, y.pages+res.pages, y.apart+res.apart
	y.compactions, y.stuck = y.compactions+res.compactions, y.stuck+res.stuck
	y.healed, y.outage, y.age = max(y.healed, res.healed), max(y.outage, res.outage), max(y.age, res.age)
	for k, n := range res.faults {
		y.faults[k] += n
	}
	for k, n := range res.crashes {
		y.crashes[k] += n
	}
	if len(res.findings) > 0 {
		y.found++
		var b strings.Builder
		for _, kind := range slices.Sorted(maps.Keys(res.findings)) {
			fmt.Fprintf(&b, "\n   %d × %s: %s", res.findings[kind], kind, res.examples[kind])
		}
		t.Errorf("seed %d, after %v of faults %v:%s\n   its story: make simulate SEED=%d RUNS=1 STORY=1", seed, res.took, res.faults, b.String(), seed)
	}
}

func newTally() *tally {
	return &tally{faults: map[string]int{}, crashes: map[string]int{}, began: time.Now(), cpu: cpuTime()}
}

func (y *tally) report(t *testing.T) {
	t.Helper()
	real := time.Since(y.began)
	of := (cpuTime() - y.cpu).Minutes()
	t.Logf("%d runs in %v, %.0f a minute, %.0f a minute of one core, or %.0f of 30 blocks, %.0f virtual seconds a second; %d with findings; %d requests, %d of them refused, %d of them values, %d from Redis, %d of an index at another block than the chain, %d pages, %d rows, %d blocks of streams, which were resumed %d times and reset %d times, %d alerts, %d reports, %d of them charged, %d wallets that were not, %d compactions, %d groups stuck in the embedded broker; slowest healing %v, longest refusal %v, oldest answer %v\nfaults %v\nprocesses that ended by themselves %v",
		y.runs, real.Round(time.Millisecond), float64(y.runs)/real.Minutes(), float64(y.runs)/of, float64(y.blocks)/30/of, y.virtual.Seconds()/real.Seconds(), y.found, y.requests, y.errors, y.values, y.cached, y.apart, y.pages, y.rows, y.events, y.resumes, y.resets, y.alerts, y.reports, y.tickets, y.uncharged, y.compactions, y.stuck, y.healed, y.outage, y.age, y.faults, y.crashes)
}

// CI always runs the same seeds, however fast it is, so that only a change can break a build: from ciSeed on, ciRuns at the most.
const (
	ciSeed = 12_000_000
	ciRuns = 20
)

// TestFreshSeeds runs seeds that nobody has run, for a minute or as flags say.
func TestFreshSeeds(t *testing.T) {
	seed, most := *seedFlag, math.MaxInt
	switch {
	case seed != 0:
	case os.Getenv("CI") != "":
		seed, most = ciSeed, ciRuns
	default:
		seed = uint64(time.Now().UnixNano()) % 1e9 * 1000
	}
	t.Logf("seeds from %d", seed)
	judge(t)
	if _, err := optionsOf(seed); err != nil {
		t.Fatal(err)
	}
	if *seedFlag != 0 {
		warm(t)
	}
	y := newTally()
	for (*runsFlag == 0 && y.runs < most && time.Since(y.began) < *timeFlag) || y.runs < *runsFlag {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { y.runSeed(t, seed) })
		seed++
		if *oneFlag && y.found > 0 {
			break
		}
	}
	y.report(t)
}

// warm does what a process does but once, in a run that does not count: so a seed is the same run alone and after others.
func warm(t *testing.T) {
	t.Helper()
	rec, o := judge(t)
	opt, err := optionsOf(ciSeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, cannot, left := simulated(t, rec, o, ciSeed, opt, &story{}); cannot != nil || left != nil {
		t.Error(cannot, left)
	}
}

// TestKeptSeeds runs the seeds that found something: testdata/seeds has a line for each, with the finding.
func TestKeptSeeds(t *testing.T) {
	if *seedFlag != 0 {
		t.Skip("a seed is asked for")
	}
	file, err := os.Open("testdata/seeds")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	judge(t)
	y := newTally()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("testdata/seeds: %v", err)
		}
		t.Run(text, func(t *testing.T) { y.runSeed(t, seed) })
	}
	y.report(t)
}
