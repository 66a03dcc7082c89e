package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/kafka"
)

// faultKind is a kind of fault. It blocks until the fault is healed.
type faultKind struct {
	name   string
	weight int
	on     string // the kind of hosts that it happens to; empty: all
	do     func(ctx context.Context, r *run, f fault) error
}

// dries reports whether blocks may not come while this fault lasts: not even to nodes that nothing happens to.
func (k *faultKind) dries(f fault) bool {
	return k.name != lonelyIngester.name && kindOf(f.host) == "ingester" || slices.Contains([]string{
		"brokers stall", "brokers do not answer", "brokers are slow", "leaders move", "fence", "chain is away", "chain node lies", "chain node is away", "chain node is slow", "chain node forges", "chain node forges ranges",
	}, k.name)
}

// fault is one of a run.
type fault struct {
	host, other string
	hosts       []string      // all roles'
	brokers     []string      // one, or all
	begins      time.Duration // after a block
	lasts       time.Duration
	seed        uint64
}

const (
	longest = 20 * time.Second // maximum duration of a fault
	// amid is how long a block takes, at the most, from the chain to the output topics: two faults of three begin in that time.
	amid = 60 * time.Millisecond
)

// kinds are all faults. A switch is the weight.
func kinds() []faultKind {
	return []faultKind{
		{"kill", 6, "", func(ctx context.Context, r *run, f fault) error { return r.down(ctx, r.kill, f) }},
		{"stop", 2, "", func(ctx context.Context, r *run, f fault) error { return r.down(ctx, r.stop, f) }},
		{"lose the disk", 1, "", func(ctx context.Context, r *run, f fault) error {
			return r.down(ctx, func(host string) error {
				err := r.kill(host)
				r.loseDisk(host)
				return err
			}, f)
		}},
		// Only towards others: its own timers go on.
		{"freeze", 4, "", func(_ context.Context, r *run, f fault) error {
			return r.hold(f.host, r.around(f.hosts), true, f.lasts)
		}},
		{"partition", 2, "", func(_ context.Context, r *run, f fault) error {
			return r.hold(f.host, []string{f.other}, true, f.lasts)
		}},
		{"half partition", 2, "", func(_ context.Context, r *run, f fault) error {
			return r.hold(f.host, []string{f.other}, false, f.lasts)
		}},
		// Long enough for others to be asked, and too short to be taken for dead.
		{"falter", 4, "", func(_ context.Context, r *run, f fault) error { return r.falter(f) }},
		{"reset", 2, "", func(_ context.Context, r *run, f fault) error { r.net.reset(f.host); return nil }},
		{"brokers stall", 2, "", func(_ context.Context, r *run, f fault) error { return r.holdAll(f.brokers, f.hosts, true, f.lasts) }},
		{"brokers do not answer", 1, "", func(_ context.Context, r *run, f fault) error { return r.holdAll(f.brokers, f.hosts, false, f.lasts) }},
		{"brokers are slow", 2, "", func(_ context.Context, r *run, f fault) error {
			r.slow(f.brokers, 100*time.Millisecond)
			time.Sleep(f.lasts)
			r.slow(f.brokers, 0)
			return nil
		}},
		{"leaders move", 2, "", func(_ context.Context, r *run, f fault) error { return r.elect(rand.New(rand.NewPCG(f.seed, 0))) }},
		// It answers on, as who can be read does, while others take over what it owns.
		{"cut off from the brokers", 2, "processor", func(_ context.Context, r *run, f fault) error {
			return r.hold(f.host, names("kafka", r.brokers), true, kafka.DefaultSessionTimeout+f.lasts/2)
		}},
		zombie,
		{"disk is full", 2, "processor", func(ctx context.Context, r *run, f fault) error { return r.ail(ctx, f, full) }},
		{"disk does not sync", 1, "processor", func(ctx context.Context, r *run, f fault) error { return r.ail(ctx, f, unsynced) }},
		{"brokers answer in parts", 2, "", func(_ context.Context, r *run, f fault) error {
			stop := r.broker.AnswerInParts()
			time.Sleep(f.lasts)
			stop()
			return nil
		}},
		{"compaction", 2, "", func(_ context.Context, r *run, f fault) error { r.compact(f); return nil }},
		{"fence", 2, "processor", func(ctx context.Context, r *run, f fault) error {
			if err := r.fence(ctx, f); err != nil && r.opt.alone { // else the brokers may be away
				return err
			}
			return nil
		}},
		{"roll", 1, "", func(ctx context.Context, r *run, f fault) error { return r.roll(ctx, f) }},
		{"resize", 2, "processor", func(ctx context.Context, r *run, f fault) error { return r.resize(ctx, f) }},
		// What they know of the chain then is what they read back, whether or not it has changed meanwhile.
		{beforeTurn, 1, "ingester", func(ctx context.Context, r *run, f fault) error {
			taken := slices.DeleteFunc(names("ingester", r.opt.ingesters), func(h string) bool { return !r.takes(h, f.host) })
			var errs []error
			for _, h := range taken {
				errs = append(errs, r.stop(h))
			}
			for _, h := range taken {
				errs = append(errs, r.start(ctx, h))
				r.leaves(h, f.host)
			}
			return errors.Join(errs...)
		}},
		// As while it syncs.
		{"chain knows nothing final", 1, "", func(_ context.Context, r *run, f fault) error {
			r.chain.knowsFinal(false)
			time.Sleep(f.lasts)
			r.chain.knowsFinal(true)
			return nil
		}},
		{"chain is away", 1, "", func(_ context.Context, r *run, f fault) error { return r.hold("chain", f.hosts, true, f.lasts) }},
	}
}

// briefOwner is a fault that breaks two things: others own what the host held, on slow brokers, until it is back, and
// may not have caught up by then.
var briefOwner = faultKind{"kill for a session", 4, "", func(ctx context.Context, r *run, f fault) error {
	f.lasts = kafka.DefaultSessionTimeout + f.lasts/8
	r.slow(f.brokers, 100*time.Millisecond)
	err := r.down(ctx, r.kill, f)
	time.Sleep(f.lasts)
	r.slow(f.brokers, 0)
	return err
}}

// beforeTurn is what a fault is that begins right before a reorg.
const beforeTurn = "ingesters start again"

// slowMove is another: partitions move between processors that are alive, while each step of it takes a part of a second.
var slowMove = faultKind{"resize on slow brokers", 3, "processor", func(ctx context.Context, r *run, f fault) error {
	r.slow(f.brokers, 100*time.Millisecond)
	defer r.slow(f.brokers, 0)
	return r.resize(ctx, f)
}}

// staleStandby is a third: a processor that is cut off from the brokers can be read, and is the only one that still can for some
// partitions, because another is killed.
var staleStandby = faultKind{"kill beside one cut off", 4, "processor", func(ctx context.Context, r *run, f fault) error {
	others := slices.DeleteFunc(r.processors(), func(h string) bool { return h == f.host })
	if len(others) == 0 {
		return nil
	}
	other := others[f.seed%uint64(len(others))]
	if !r.takes(other, f.host) {
		return nil
	}
	defer r.leaves(other, f.host)
	var g errgroup.Group
	g.Go(func() error { return r.hold(f.host, names("kafka", r.brokers), true, 3*time.Second+f.lasts/4) })
	time.Sleep(time.Second + f.lasts/10)
	err := r.kill(other)
	return errors.Join(err, g.Wait(), r.start(ctx, other))
}}

// cutFromChain is a fault of runs in which serving nodes read the chain.
var cutFromChain = faultKind{"cut off from the chain", 3, "serving", withoutChain}

// lonelyIngester is a fault of one ingester: another one reads the chain, and takes over.
var lonelyIngester = faultKind{"ingester is cut off from the chain", 2, "ingester", withoutChain}

func withoutChain(_ context.Context, r *run, f fault) error {
	return r.hold(f.host, []string{"chain", liarHost, witnessHost}, true, f.lasts)
}

// warmAfter is how long after a healing every partition is held by an owner and a standby again.
const warmAfter = 15 * time.Second

// quiet reports whether there is no fault, and was none recently.
func (r *run) quiet() bool {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	return r.isQuiet()
}

// isQuiet is quiet with the lock held.
func (r *run) isQuiet() bool {
	for _, busy := range r.busy {
		if busy {
			return false
		}
	}
	for _, at := range r.healed {
		if time.Since(at) <= warmAfter {
			return false
		}
	}
	return true
}

// kindsOf are the kinds of a run, each as often as its weight says.
func kindsOf(opt options) (weighted []faultKind, err error) {
	of, together := append(kinds(), lonelyIngester), []faultKind{briefOwner, slowMove, staleStandby}
	if opt.redis {
		of = append(of, redisKinds()...)
	}
	if opt.valuation {
		of = append(of, cutFromChain)
	}
	if opt.alerts {
		of = append(of, telegramKinds()...)
	}
	if opt.reports {
		of = append(of, paymentKinds()...)
	}
	if opt.liar {
		of = append(of, liarKinds()...)
	}
	if opt.forger {
		of = append(of, forgerKinds()...)
	}
	names, known := []string{clocksApart}, slices.Contains(opt.faults, clocksApart)
	for i, k := range append(of, together...) {
		names = append(names, k.name)
		asked := slices.Contains(opt.faults, k.name)
		known = known || asked
		if len(opt.faults) > 0 && !asked || i >= len(of) && opt.alone {
			continue
		}
		for range k.weight {
			weighted = append(weighted, k)
		}
	}
	if len(opt.faults) > 0 && !known {
		return nil, fmt.Errorf("none of the faults %q is one of %q", opt.faults, names)
	}
	return weighted, nil
}

// fault starts a fault, and heals it after a while.
func (r *run) fault(ctx context.Context, wg *sync.WaitGroup, hosts []string) {
	if len(r.opt.kinds) == 0 { // of the whole run alone
		return
	}
	kind := r.opt.kinds[r.rng.IntN(len(r.opt.kinds))]
	if at := slices.IndexFunc(r.opt.kinds, func(k faultKind) bool { return k.name == beforeTurn }); at >= 0 && r.chain.turns() {
		kind = r.opt.kinds[at]
	}
	of := slices.DeleteFunc(r.running(hosts), func(h string) bool { return kind.on != "" && kindOf(h) != kind.on })
	f := fault{hosts: hosts, host: of[r.rng.IntN(len(of))], lasts: time.Duration(r.rng.Int64N(int64(longest))), seed: r.rng.Uint64()}
	f.brokers = names("kafka", r.brokers)
	f.other = append(f.brokers, hosts...)[r.rng.IntN(len(hosts)+r.brokers)]
	if i := r.rng.IntN(2 * r.brokers); i < r.brokers {
		f.brokers = f.brokers[i : i+1]
	}
	if f.seed%3 > 0 {
		f.begins = time.Duration(f.seed % uint64(amid))
	}
	r.rmu.Lock()
	defer r.rmu.Unlock()
	if r.busy[f.host] {
		return
	}
	dries := kind.dries(f)
	if dries {
		r.dry++
	}
	r.busy[f.host] = true
	r.ails[f.host] = kind.name
	r.spells = append(r.spells, spell{from: time.Now()})
	at := len(r.spells) - 1
	r.result.faults[kind.name]++
	r.story.tell("FAULT", kind.name, f.host, "other="+f.other, fmt.Sprint(f.brokers), f.lasts.String(), "after "+f.begins.String())
	wg.Go(func() {
		time.Sleep(f.begins)
		if err := kind.do(ctx, r, f); err != nil {
			r.found("fault fails", "%s of %s: %v", kind.name, f.host, err)
		}
		r.story.tell("HEALED", kind.name, f.host)
		r.rmu.Lock()
		defer r.rmu.Unlock()
		r.busy[f.host], r.healed[f.host] = false, time.Now()
		r.spells[at].until = time.Now()
		if dries {
			r.dry--
			r.flows = time.Now()
		}
	})
}

// slow delays what brokers send and get.
func (r *run) slow(brokers []string, by time.Duration) {
	for _, b := range brokers {
		r.net.slow(b, by)
	}
}

// down has a host ended, and started after a while.
func (r *run) down(ctx context.Context, end func(string) error, f fault) error {
	err := end(f.host)
	time.Sleep(f.lasts)
	return errors.Join(err, r.start(ctx, f.host))
}

// elect has partitions led by any of the brokers, and groups and transactions coordinated by others.
func (r *run) elect(rng *rand.Rand) error {
	r.broker.MoveCoordinators()
	var errs []error
	for _, t := range r.cat.Topics() {
		for p := range t.Partitions {
			errs = append(errs, r.broker.Move(t.Name(), p, int32(rng.IntN(r.brokers))))
		}
	}
	return errors.Join(errs...)
}

// holdAll is hold of several at once.
func (r *run) holdAll(hosts, others []string, back bool, lasts time.Duration) error {
	var g errgroup.Group
	for _, h := range hosts {
		g.Go(func() error { return r.hold(h, others, back, lasts) })
	}
	return g.Wait()
}

// falterWithin is how long who falters is silent, and then is not, at the most.
const falterWithin = 400 * time.Millisecond

// falter freezes a host for moments, again and again.
func (r *run) falter(f fault) error {
	rng := rand.New(rand.NewPCG(f.seed, 0))
	for end := time.Now().Add(f.lasts); time.Now().Before(end); time.Sleep(time.Duration(rng.Int64N(int64(falterWithin)))) {
		if err := r.hold(f.host, r.around(f.hosts), true, time.Duration(rng.Int64N(int64(falterWithin)))); err != nil {
			return err
		}
	}
	return nil
}

// around are all that a host talks to.
func (r *run) around(hosts []string) []string {
	return append(append(names("kafka", r.brokers), "chain", liarHost, witnessHost, redisHost, telegramHost, paymentHost, facilitatorHost, "client"), hosts...)
}

// hold keeps what a host sends to others, and with back what they send to it, for a while.
func (r *run) hold(host string, others []string, back bool, lasts time.Duration) error {
	for _, held := range []bool{true, false} {
		for _, o := range others {
			if o != host {
				r.net.block(host, o, held)
				if back {
					r.net.block(o, host, held)
				}
			}
		}
		if held {
			time.Sleep(lasts)
		}
	}
	return nil
}
