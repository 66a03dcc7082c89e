package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// opinion is one node's result for a transaction.
type opinion struct {
	from chain.Node
	read *preparation // what it read; nil: it did not answer
	done *simulated   // what the transaction does
	err  error        // why the transaction is refused, or why the node did not answer
}

// says reports whether it is a result: the effect of the transaction, or a refusal.
func (o opinion) says() bool { return o.err == nil || isVerdict(o.err) }

// readsAs reports whether it read the same.
func (o opinion) readsAs(p *preparation) bool {
	return o.read != nil && !isMismatch(o.err) && inText(o.read.said()) == inText(p.said())
}

// readsElse reports whether it read something else.
func (o opinion) readsElse(p *preparation) bool {
	return isMismatch(o.err) || o.read != nil && !o.readsAs(p)
}

// outcome is the effect of the transaction, or why it is refused. Where that is the quorum two nodes must agree: the
// node that was read simulates, and at the same time another reads and simulates. If they differ, or only one can
// simulate, a third is asked.
func (a *Agent) outcome(ctx context.Context, p *preparation, pl *plan, call chain.Call) (*simulated, error) {
	at := &reads{at: p.head.Hash}
	if a.chain.Quorum() < 2 {
		done, _, err := a.simulate(ctx, chain.WithOtherNode, p, pl, call, at)
		return done, err
	}
	one := opinion{from: chain.AnsweredBy(ctx), read: p}
	beside := make(chan opinion, 1)
	go func() { beside <- a.opinion(ctx, chain.WithSecondNode, p, pl, call) }()
	one.done, _, one.err = a.simulate(ctx, func(ctx context.Context) context.Context { return chain.Only(ctx, one.from) }, p, pl, call, at)
	all := []opinion{one, <-beside}
	if !certain(p, all) && a.chain.Others(all[0].from, all[1].from) {
		without := func(ctx context.Context) context.Context { return chain.Without(ctx, all[0].from, all[1].from) }
		all = append(all, a.opinion(ctx, without, p, pl, call))
	}
	return a.settle(ctx, p, all)
}

// opinion is what another node reads and simulates.
func (a *Agent) opinion(ctx context.Context, of func(context.Context) context.Context, p *preparation, pl *plan, call chain.Call) (o opinion) {
	defer func() {
		if v := recover(); v != nil { // in a goroutine of its own nothing else recovers, so it would end the process
			o = opinion{err: fmt.Errorf("read again: %v", v)}
		}
	}()
	o.read = p.anew()
	r := o.read.reads()
	o.done, o.from, o.err = a.simulate(ctx, of, p, pl, call, r)
	if !r.taken {
		o.read = nil
	}
	return o
}

// certain reports whether two opinions need no third.
func certain(p *preparation, all []opinion) bool {
	v, ok := inCommon(all)
	return ok && all[1].readsAs(p) && (v.err != nil || v.done.twice || v.done.lacks)
}

// settle is the result on which two of the opinions agree. The reads are those of the first, and another must have read
// the same.
func (a *Agent) settle(ctx context.Context, p *preparation, all []opinion) (*simulated, error) {
	if !slices.ContainsFunc(all[1:], func(o opinion) bool { return o.readsAs(p) }) {
		if slices.ContainsFunc(all[1:], func(o opinion) bool { return o.readsElse(p) }) {
			return nil, disagree("what was asked")
		}
		return nil, all[1].err
	}
	v, ok := inCommon(all)
	if !ok {
		return nil, undecided(all)
	}
	var against []chain.Node
	for _, o := range all {
		if _, same := o.with(v); o.readsElse(p) || o.says() && !same {
			against = append(against, o.from)
		}
	}
	a.chain.Dissents(ctx, against...)
	return v.done, v.err
}

// inCommon is what two of the opinions have in common. Two that can simulate are worth most; then one that can, and one
// that cannot. If two that can differ, and one that cannot agrees with both, only its own result counts.
func inCommon(all []opinion) (found opinion, ok bool) {
	var by opinion // the one with the details that were found
	for i, one := range all {
		for _, other := range all[i+1:] {
			v, same := one.with(other)
			if !same {
				continue
			}
			if v.err != nil || v.done.twice {
				return v, true
			}
			able, unable := one, other
			if one.done.lacks {
				able, unable = other, one
			}
			switch {
			case !ok || found.done.lacks && by.done == nil:
				found, by = v, able
				if v.done.lacks {
					by = opinion{}
				}
			case !v.done.lacks && by.done != able.done:
				return unable, true
			}
			ok = true
		}
	}
	return found, ok
}

// undecided is the error where no two opinions have anything in common.
func undecided(all []opinion) error {
	var said []opinion
	var err error
	for _, o := range all {
		if o.says() {
			said = append(said, o)
		} else if err == nil {
			err = o.err
		}
	}
	if len(said) > 1 || err == nil {
		return disagree("what the transaction does")
	}
	return err
}

// with is what two opinions have in common: what the transaction does, or why it is refused.
func (o opinion) with(other opinion) (opinion, bool) {
	if !o.says() || !other.says() || (o.err == nil) != (other.err == nil) {
		return opinion{}, false
	}
	if o.err != nil {
		return o, sameRefusal(o.err, other.err)
	}
	done, same := o.done.with(other.done)
	return opinion{from: o.from, done: done}, same
}

// sameRefusal reports whether two refusals have one code and, where both name a contract's error, the same.
func sameRefusal(one, other error) bool {
	first, second := contractError(one), contractError(other)
	return codeName(one) == codeName(other) && (first == "" || second == "" || first == second)
}

// contractError is the contracts' error that a refusal names.
func contractError(err error) string {
	known, ok := errors.AsType[*httpapi.Error](err)
	if !ok {
		return ""
	}
	_, name, _ := strings.Cut(known.Message, "it would revert: ")
	return name
}

// Gas of two nodes may be this far apart: their estimates are not all made alike, but a run of the same takes the same
// but for what a chain charges besides.
const (
	maxGasRatio  = 2
	maxUsedShare = 4 // as a divisor
)

// with holds what the transaction does on one node to what it does on another, and takes the higher gas of the two.
// They differ where one of them cannot be right: too much would be reserved of the wallet's coin, or too little be paid
// for a transaction that then reverts. Of a node that cannot simulate the estimate is all there is.
func (s *simulated) with(o *simulated) (*simulated, bool) {
	v := *s
	if s.lacks {
		v = *o
	}
	low, high := min(s.needed, o.needed), max(s.needed, o.needed)
	if high/maxGasRatio > low || s.collateralPaused != o.collateralPaused {
		return nil, false
	}
	v.needed, v.twice = high, !s.lacks && !o.lacks
	if v.twice {
		low, high := min(s.used, o.used), max(s.used, o.used)
		if s.late != o.late || inText(s.Transfers) != inText(o.Transfers) || low < high-high/maxUsedShare {
			return nil, false
		}
		v.used = high
	}
	return &v, true
}
