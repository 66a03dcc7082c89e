package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
)

// options say what a run is made of.
type options struct {
	size
	processors, servings, ingesters int

	steps     int           // that the chain makes while faults happen, besides those of a burst
	pause     time.Duration // between two of them, at the most
	reads     time.Duration // between two requests of a client, at the most
	calm      bool          // no faults
	faults    []string      // only these kinds; nil: all
	kinds     []faultKind   // those of this run, each as often as its weight says
	redis     bool          // there is a Redis
	tipCommit time.Duration // least time between two commits at the tip
	liar      bool          // the chain has a second node, which may lie
	forger    bool          // the chain has two more nodes, one of which may make up blocks
	sparse    bool          // of history, ingesters read what has logs alone, and the second node has none of it
	valuation bool          // the valuation service is asked, too
	agent     bool          // and the agent API
	alerts    bool          // every party of a deal asks for alerts
	long      bool          // it goes on from before a deal is funded until that one's alerts are due
	reports   bool          // bugs are reported, and paid for
	restored  int           // steps at the end, before which all processors begin again without their disks; 0: they do not
	stuck     bool          // the group of the notifier's facts is, from the start
	alone     bool          // one fault at a time, when the last was long healed: what is held twice stays readable
}

// Numbers of partitions. What a partition costs, it costs in each block.
const (
	fewPartitions  = 2
	manyPartitions = 4
)

func defaultOptions() options {
	return options{size: size{1, fewPartitions}, processors: 3, servings: 2, ingesters: 2, steps: 30, pause: time.Second, reads: 200 * time.Millisecond}
}

// result is what a run came to.
type result struct {
	findings         map[string]int    // by what they say, without numbers
	examples         map[string]string // the first of each
	requests, errors int
	values           int // answers of the valuation service
	compactions      int
	cached           int // answers that serving nodes had from Redis, since they started last
	rows             int // of entities, whose blocks were judged
	pages            int // that were judged
	apart            int // answers of the agent API whose index was as of another block than the chain
	stuck            int // groups that the embedded broker had stuck
	blocks           int // that the chain made while clients read
	events           int // blocks of the stream that were compared
	resumes, resets  int // streams that went on from an event, and those that had to begin anew
	alerts           int // that came
	reports, tickets int // that were certain in the end, and those of them that were charged
	uncharged        int // wallets that might not be charged, and were not
	faults           map[string]int
	crashes          map[string]int
	took             time.Duration // virtual
	healed           time.Duration // from the last healing until all nodes answer as of the head
	age              time.Duration // longest since a block was overtaken as of which a node answered, while blocks came
	outage           time.Duration // longest that a question was refused by a node that nothing happened to
	refused          string        // which that was
	trace            uint64        // two runs that differ in it were not the same
}

// add counts a finding.
func (r *result) add(kind, text string) {
	if r.findings == nil {
		r.findings, r.examples = map[string]int{}, map[string]string{}
	}
	if r.findings[kind]++; r.findings[kind] == 1 {
		r.examples[kind] = text
	}
}

// run is a run under way.
type run struct {
	*system
	oracle *oracle
	opt    options
	pace   *pace
	began  time.Time

	rmu     sync.Mutex
	settled bool            // it has begun to answer as of the head
	dry     int             // faults by which no blocks may come
	flows   time.Time       // when the last of them was healed
	members map[string]bool // hosts that are to run
	result  result
	shown   map[string]shownAnswer // by serving node and class of question: what it has last answered as of
	newest  map[string]uint64      // by class of question: the highest block that any node answered as of
	told    map[string][]telling   // by serving node: what it answered as of, in order of time
	busy    map[string]bool        // hosts that something happens to
	ails    map[string]string      // what did last
	healed  map[string]time.Time   // by host: when it was healed last
	hear    map[string]bool        // hosts that hear from the brokers how far the others are, though something happens to them
	refused map[string]time.Time   // since when a question is
	spells  []spell

	freeing chan struct{} // held while a stuck group is looked for, and freed
	freedAt time.Time     // when one was, the last time

	telegram    *telegram // nil: nobody asks for alerts
	facilitator *facilitator
	reporters   []*reporter
	unpaying    []*reporter // those that may not be charged
}

// spell is for how long something is broken.
type spell struct{ from, until time.Time } // zero: it is

// shownAnswer is an answer that a client got.
type shownAnswer struct {
	block common.Hash
	life  int // of the node that gave it
	what  string
}

// found notes a breach of a law.
func (r *run) found(kind, format string, args ...any) {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	text := fmt.Sprintf("%v: ", time.Since(r.began).Round(time.Millisecond)) + fmt.Sprintf(format, args...)
	r.story.tell("LAW", kind, text)
	r.result.add(kind, text)
}

// simulate runs a system through a recording with the faults that a seed decides, and judges its answers.
func simulate(ctx context.Context, rec *recording, o *oracle, seed uint64, opt options, story *story) (result, error) {
	brokerRandomAt = brokerRandom
	s, err := newSystem(ctx, rec, seed, opt.size, story)
	if err != nil {
		return result{}, errors.Join(err, s.close())
	}
	r := &run{system: s, oracle: o, opt: opt, members: map[string]bool{}, began: time.Now(), shown: map[string]shownAnswer{}, newest: map[string]uint64{}, told: map[string][]telling{}, busy: map[string]bool{}, ails: map[string]string{}, healed: map[string]time.Time{}, hear: map[string]bool{}, refused: map[string]time.Time{}, freeing: make(chan struct{}, 1)}
	r.result = result{faults: map[string]int{}}
	err = r.begin(ctx, seed)
	r.result.trace, r.result.took, r.result.crashes = s.net.sum(), time.Since(r.began), s.crashes
	for _, what := range slices.Sorted(maps.Keys(s.crashes)) {
		if !startsWithoutBrokers(what) {
			r.found("a process ended by itself", "%s", what)
		}
	}
	if err := s.close(); err != nil {
		r.found("does not end", "%v", err)
	}
	return r.result, err
}

// begin starts what a run is made of, and lets it live.
func (r *run) begin(ctx context.Context, seed uint64) error {
	s, opt := r.system, r.opt
	end := r.chain.rec.ends[s.rng.IntN(len(r.chain.rec.ends))]
	if opt.long {
		end = r.chain.rec.ends[len(r.chain.rec.ends)-1]
	}
	hosts := append(append(names("ingester", opt.ingesters), names("processor", opt.processors)...), names("serving", opt.servings)...)
	s.tipCommit, s.valuation, s.agent = opt.tipCommit, opt.valuation, opt.agent
	if opt.redis {
		if err := s.startRedis(); err != nil {
			return err
		}
	}
	if opt.liar || opt.forger {
		if err := s.startLiar(opt.forger); err != nil {
			return err
		}
		if s.sparse = opt.sparse; opt.sparse {
			s.liar.tells(withoutHistory)
		}
	}
	if opt.alerts {
		if err := r.startTelegram(ctx); err != nil {
			return err
		}
	}
	if opt.reports {
		if err := r.startReports(ctx); err != nil {
			return err
		}
	}
	if opt.stuck {
		group := fmt.Sprintf("%s.%d.%s", prefix, r.cat.ChainID, topics.AppFacts)
		if err := brokertest.Stick(ctx, r.broker.Addrs(), r.net.dialer("client"), group, r.cat.TasksTopic()); err != nil {
			return err
		}
	}
	r.apart(hosts)
	r.pace = newPace(s.rng, opt)
	s.heads = s.rng.IntN(2) == 0
	for s.chain.played <= end-r.pace.blocks()-opt.restored {
		s.chain.step()
	}
	for _, h := range hosts {
		r.members[h] = true
		if err := s.start(ctx, h); err != nil {
			return err
		}
	}
	hosts = append(hosts, names("processor", mostProcessors)[opt.processors:]...) // not started
	r.live(ctx, seed, end, opt, hosts, names("serving", opt.servings))
	return nil
}

// questions are those that clients ask.
func (r *run) questions() []string {
	all := r.oracle.paths
	if r.opt.valuation {
		all = slices.Concat(all, r.oracle.values)
	}
	if r.opt.agent {
		all = slices.Concat(all, r.oracle.agent)
	}
	return all
}

func names(kind string, n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(kind, i))
	}
	return all
}

// live lets the chain go on while clients read and faults happen, and judges what is left when all is healed.
func (r *run) live(ctx context.Context, seed uint64, end int, opt options, hosts, servings []string) {
	reading, stop := context.WithCancel(ctx)
	var readers, faults sync.WaitGroup
	r.read(reading, &readers, seed, servings)
	readers.Go(func() { r.watchTakeovers(reading) })
	if opt.reports {
		r.report(reading, &readers, servings, seed)
	}
	if err := r.settle(ctx, servings[0], time.Minute); err != nil {
		r.found("does not start", "%v", err)
	}
	if opt.sparse {
		r.liar.tells(nil)
	}
	made := r.chain.made()
	r.rmu.Lock()
	r.settled, r.flows = true, r.began
	r.rmu.Unlock()
	bursts, walks := rand.New(rand.NewPCG(seed, 300)), rand.New(rand.NewPCG(seed, 400))
	for r.chain.played <= end-opt.restored && r.chain.step() {
		r.bursts(reading, &readers, servings, bursts)
		r.walks(reading, &readers, servings, walks)
		r.asksAgents(reading, &readers, servings, walks)
		wait, fault := r.pace.next(r.quiet(), r.chain.turns())
		if time.Sleep(wait); fault && !opt.calm {
			r.fault(ctx, &faults, hosts)
		}
	}
	faults.Wait() // each heals what it broke
	r.settleAll(ctx, servings)
	r.neverAnswered(servings)
	if opt.alone && r.result.outage > outageWithin {
		r.found("a read fails for long", "%v, %s, though what one node holds another held", r.result.outage, r.result.refused)
	}
	stop()
	readers.Wait()
	if opt.redis {
		var err error
		if r.result.cached, err = r.cached(ctx, servings); err != nil {
			r.found("metrics cannot be read", "%v", err)
		}
	}
	if opt.restored > 0 {
		if err := r.restore(ctx); err != nil {
			r.found("does not restore", "%v", err)
		}
		reading, stop := context.WithCancel(ctx)
		r.read(reading, &readers, seed+1, servings)
		for r.chain.played <= end && r.chain.step() { // reorgs need what was restored
			time.Sleep(restart)
		}
		r.settleAll(ctx, servings)
		stop()
		readers.Wait()
	}
	time.Sleep(quietAgeWithin)
	r.judgeEnd(ctx, servings, seed)
	r.result.blocks = r.chain.made() - made
	r.compareTopics(ctx)
	if r.telegram != nil {
		r.telegram.judgeMissing(ctx)
	}
	r.judgeReports(ctx, servings)
}

// read has clients of all serving nodes ask, and follow their streams, until ctx is done.
func (r *run) read(ctx context.Context, readers *sync.WaitGroup, seed uint64, servings []string) {
	for i, h := range servings {
		readers.Go(func() { r.readFrom(ctx, h, rand.New(rand.NewPCG(seed, uint64(100+i))), r.opt.reads) })
	}
	for i := range listeners { // what a node tells one, it may still hold for another
		readers.Go(func() { r.listen(ctx, servings, rand.New(rand.NewPCG(seed, uint64(200+i)))) })
	}
}

// settleAll waits until all serving nodes answer as of the head, and every process says that it is ready.
func (r *run) settleAll(ctx context.Context, servings []string) {
	healed := time.Now()
	await := func(host string, what func(ctx context.Context, host string, within time.Duration) error, within time.Duration) error {
		err := what(ctx, host, within-time.Since(healed))
		if err != nil && r.freed(ctx, healed) {
			healed = time.Now()
			err = what(ctx, host, within)
		}
		return err
	}
	for _, h := range servings {
		if err := await(h, r.settle, healWithin); err != nil {
			r.found("does not reach the head", "%s: %v", h, err)
		}
	}
	r.result.healed = max(r.result.healed, time.Since(healed))
	for _, h := range r.running(slices.Sorted(maps.Keys(r.members))) {
		if err := await(h, r.ready, readyWithin); err != nil {
			r.found("is not ready", "%s: %v", h, err)
		}
	}
}
