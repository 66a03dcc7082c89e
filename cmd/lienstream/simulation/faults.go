package simulation

import (
	"context"
	"errors"
	"sync"
	"time"
)

// faultKind is something that breaks. It blocks until it is healed.
type faultKind struct {
	name   string
	weight int
	do     func(ctx context.Context, r *run, f fault) error
}

// fault is one of a run.
type fault struct {
	host, other string
	hosts       []string // all roles'
	lasts       time.Duration
}

// longest is how long a fault lasts at the most.
const longest = 20 * time.Second

// kinds are all faults. A switch is the weight.
func kinds() []faultKind {
	return []faultKind{
		{"kill", 6, func(ctx context.Context, r *run, f fault) error { return r.down(ctx, r.kill, f) }},
		{"stop", 2, func(ctx context.Context, r *run, f fault) error { return r.down(ctx, r.stop, f) }},
		{"lose the disk", 1, func(ctx context.Context, r *run, f fault) error {
			return r.down(ctx, func(host string) error {
				err := r.kill(host)
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.disks, host)
				return err
			}, f)
		}},
		// Only towards others: its own timers go on.
		{"freeze", 4, func(_ context.Context, r *run, f fault) error {
			return r.hold(f.host, append([]string{"kafka", "chain", "client"}, f.hosts...), true, f.lasts)
		}},
		{"partition", 2, func(_ context.Context, r *run, f fault) error {
			return r.hold(f.host, []string{f.other}, true, f.lasts)
		}},
		{"half partition", 2, func(_ context.Context, r *run, f fault) error {
			return r.hold(f.host, []string{f.other}, false, f.lasts)
		}},
		{"reset", 2, func(_ context.Context, r *run, f fault) error { r.net.reset(f.host); return nil }},
		{"broker stalls", 2, func(_ context.Context, r *run, f fault) error { return r.hold("kafka", f.hosts, true, f.lasts) }},
		{"broker does not answer", 1, func(_ context.Context, r *run, f fault) error { return r.hold("kafka", f.hosts, false, f.lasts) }},
		{"broker is slow", 2, func(_ context.Context, r *run, f fault) error {
			r.net.slow("kafka", 100*time.Millisecond)
			time.Sleep(f.lasts)
			r.net.slow("kafka", 0)
			return nil
		}},
		{"chain is away", 1, func(_ context.Context, r *run, f fault) error { return r.hold("chain", f.hosts, true, f.lasts) }},
	}
}

// warmAfter is how long after a healing every partition is held by an owner and a standby again.
const warmAfter = 15 * time.Second

// quiet says that nothing is broken, nor was until lately.
func (r *run) quiet() bool {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	for host, busy := range r.busy {
		if busy || time.Since(r.healed[host]) <= warmAfter {
			return false
		}
	}
	return true
}

// fault breaks something, and has it healed after a while.
func (r *run) fault(ctx context.Context, wg *sync.WaitGroup, hosts []string) {
	f := fault{hosts: hosts, host: hosts[r.rng.IntN(len(hosts))], lasts: time.Duration(r.rng.Int64N(int64(longest)))}
	f.other = append([]string{"kafka"}, hosts...)[r.rng.IntN(len(hosts)+1)]
	var all []faultKind
	for _, k := range kinds() {
		for range k.weight {
			all = append(all, k)
		}
	}
	kind := all[r.rng.IntN(len(all))]
	r.rmu.Lock()
	defer r.rmu.Unlock()
	if r.busy[f.host] {
		return
	}
	r.busy[f.host] = true
	r.result.faults[kind.name]++
	r.story.tell("FAULT", kind.name, f.host, "other="+f.other, f.lasts.String())
	wg.Go(func() {
		if err := kind.do(ctx, r, f); err != nil {
			r.found("fault fails", "%s of %s: %v", kind.name, f.host, err)
		}
		r.story.tell("HEALED", kind.name, f.host)
		r.rmu.Lock()
		defer r.rmu.Unlock()
		r.busy[f.host], r.healed[f.host] = false, time.Now()
	})
}

// down has a host ended, and started after a while.
func (r *run) down(ctx context.Context, end func(string) error, f fault) error {
	err := end(f.host)
	time.Sleep(f.lasts)
	return errors.Join(err, r.start(ctx, f.host))
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
