package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// compactEvery is the time between two compactions, at the most.
const compactEvery = 2 * time.Second

// compact has the brokers compact for a while, at any moment at which no transaction is open: the newest record of a key
// stays. Nobody writes meanwhile (broker.Compact says why): what is on its way arrives a millisecond later.
func (r *run) compact(f fault) {
	rng := rand.New(rand.NewPCG(f.seed, 0))
	for end := time.Now().Add(f.lasts); time.Now().Before(end); time.Sleep(time.Duration(rng.Int64N(int64(compactEvery)))) {
		r.compactOnce(f.hosts, r.compacted())
	}
}

// compacted are the topics of which the newest record of a key stays.
func (r *run) compacted() (all []string) {
	for _, t := range r.cat.Topics() {
		if t.Compacted {
			all = append(all, t.Name())
		}
	}
	return all
}

// compactOnce compacts if no transaction is open, and reports whether it did.
func (r *run) compactOnce(hosts, compacted []string) bool {
	set := func(held bool) {
		for _, b := range names("kafka", r.brokers) {
			for _, h := range hosts {
				r.net.block(h, b, held)
			}
		}
	}
	set(true)
	defer set(false)
	time.Sleep(time.Millisecond)
	if !r.broker.Compact(compacted...) {
		return false
	}
	r.rmu.Lock()
	defer r.rmu.Unlock()
	r.result.compactions++
	return true
}

// fence takes the transactional ID of a producer, whose open transaction is aborted, as another that takes itself for the
// owner does.
func (r *run) fence(ctx context.Context, f fault) error {
	ctx, cancel := context.WithTimeout(ctx, fenceWithin)
	defer cancel()
	ids, err := brokertest.TransactionalIDs(ctx, r.broker.Addrs(), r.net.dialer("client"))
	if err != nil || len(ids) == 0 {
		return err
	}
	id := ids[f.seed%uint64(len(ids))]
	tx, err := kafka.NewTransactor(r.kafka(), id, kafka.TransactorOptions{})
	if err != nil {
		return err
	}
	defer tx.Close()
	r.story.tell("FENCED", id)
	return tx.Init(ctx)
}

// fenceWithin is a timeout. Where brokers are away nobody is fenced, which is no finding.
const fenceWithin = 5 * time.Second

// rebalanceWithin is more than the timeout of a rebalance: what takes longer is stuck.
const rebalanceWithin = 2*kafka.DefaultSessionTimeout + time.Second

// freed waits until no rebalance since a moment can be under way, and reports whether a group was stuck in one, or had been.
// The members of one that was stuck join anew as their requests time out.
func (r *run) freed(ctx context.Context, since time.Time) bool {
	time.Sleep(rebalanceWithin - time.Since(since))
	if r.regroup(ctx) > 0 {
		time.Sleep(rebalanceWithin)
		return true
	}
	return r.freedAt.After(since)
}

// frees reports whether answers are so old because the embedded broker has a group stuck, and frees it.
func (r *run) frees(ctx context.Context, age time.Duration) bool {
	return age > rebalanceWithin && r.freesNow(ctx)
}

// freesNow is frees where nothing has happened for so long that a group that is about to rebalance is stuck. That is a healing of all
// hosts.
func (r *run) freesNow(ctx context.Context) bool {
	r.freeing <- struct{}{}
	defer func() { <-r.freeing }()
	if time.Since(r.freedAt) > warmAfter && r.regroup(ctx) > 0 {
		r.freedAt = time.Now()
		r.rmu.Lock()
		defer r.rmu.Unlock()
		r.flows = r.freedAt
		for host := range r.members {
			r.healed[host] = r.freedAt
		}
	}
	return time.Since(r.freedAt) <= warmAfter
}

// regroup frees groups that the embedded broker has stuck, which Apache Kafka would not, and returns how many there were. With
// kfake.patch it has none.
func (r *run) regroup(ctx context.Context) (stuck int) {
	ctx, cancel := context.WithTimeout(ctx, fenceWithin)
	defer cancel()
	stuck, err := brokertest.Regroup(ctx, r.broker.Addrs(), r.net.dialer("client"))
	if err != nil {
		r.found("groups cannot be read", "%v", err)
	}
	r.story.tell("REGROUP", fmt.Sprint(stuck))
	if stuck > 0 && exact && !r.opt.stuck {
		r.found("a group does not end its rebalance", "%d", stuck)
	}
	r.result.stuck += stuck
	return stuck
}
