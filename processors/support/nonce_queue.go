package support

import "slices"

// maxQueued bounds the relayer's transactions that are not final, and so the payments that it settles within the time
// of the confirmations: nodes drop transactions beyond an account's share of their pool. See docs/operations.md.
const maxQueued = 256

// maxChains bounds the chains of a relayer's key.
const maxChains = 16

// takeNonce assigns the relayer's next nonce on a chain to an authorization: a single sequence for all processes with
// its key, which survives each of them. A repeated request gets the same nonce, until the chain has passed it.
func (t *execution) takeNonce() Outcome {
	r := t.cmd.Take
	q := t.desk.queue(r)
	if q == nil {
		return Refused
	}
	q.Slots = slices.DeleteFunc(q.Slots, func(s Slot) bool { return s.Nonce < r.Deep })
	if _, has := q.Slot(r.From, t.cmd.Nonce, r.Mined); has {
		return Exists
	}
	if len(q.Slots) >= maxQueued {
		return Limited
	}
	q.Next = max(q.Next, r.Mined)
	q.Slots = append(q.Slots, Slot{Nonce: q.Next, From: r.From, To: r.To, Authorization: t.cmd.Nonce})
	q.Next++
	return Done
}

// queue returns the queue of a request's chain, which the first request creates; nil: it names no chain, or there are
// maxChains.
func (d *Desk) queue(r *NonceRequest) *Queue {
	q := d.Queue(r.Chain, r.Mined)
	if slices.ContainsFunc(d.Queues, func(has Queue) bool { return has.Chain == r.Chain }) {
		return q
	}
	if r.Chain == 0 || len(d.Queues) >= maxChains {
		return nil
	}
	d.NextNonce, d.NonceQueue = 0, nil
	d.Queues = append(d.Queues, *q)
	return &d.Queues[len(d.Queues)-1]
}
