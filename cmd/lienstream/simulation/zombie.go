package simulation

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/kafka"
)

// zombieBeside is how long a zombie is one after it was replaced, at the least: until its last answers are older than any may be.
const zombieBeside = 5 * time.Second

// zombie is a fault by which a serving node reaches, of all processors, one that is cut off from the brokers, and so is replaced
// without noticing. The serving node hears of its successor from the brokers, and can ask nobody else: it refuses, and gives
// nobody what the zombie still says.
var zombie = faultKind{"serving reaches a zombie alone", 2, "processor", func(_ context.Context, r *run, f fault) error {
	servings := names("serving", r.opt.servings)
	serving := servings[f.seed%uint64(len(servings))]
	if !r.takes(serving, f.host) {
		return nil
	}
	defer r.leaves(serving, f.host)
	r.hears(serving, true)
	defer r.hears(serving, false)
	lasts := kafka.DefaultSessionTimeout + zombieBeside + f.lasts/4
	others := slices.DeleteFunc(names("processor", mostProcessors), func(h string) bool { return h == f.host })
	var g errgroup.Group
	g.Go(func() error { return r.hold(f.host, names("kafka", r.brokers), true, lasts) })
	g.Go(func() error { return r.hold(serving, others, true, lasts) })
	return g.Wait()
}}

// hears says whether a host that something happens to hears from the brokers how far the others are: then its answers become no
// older than those of who is well.
func (r *run) hears(host string, is bool) {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	r.hear[host] = is
}
