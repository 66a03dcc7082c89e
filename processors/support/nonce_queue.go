package support

import "slices"

// maxQueued bounds the relayer's transactions that are not final, and with it what it settles in the time of the
// confirmations: nodes drop what exceeds an account's share of their pool. docs/operations.md tells operators.
const maxQueued = 256

// takeNonce assigns the relayer's next nonce to an authorization: a single sequence for all processes with its
// key, which survives each of them. A repeated request gets the same nonce, until the chain has passed it.
func (t *execution) takeNonce() Outcome {
	q, d := t.cmd.Take, t.desk
	d.NonceQueue = slices.DeleteFunc(d.NonceQueue, func(s Slot) bool { return s.Nonce < q.Deep })
	if _, has := d.Slot(q.From, t.cmd.Nonce, q.Mined); has {
		return Exists
	}
	if len(d.NonceQueue) >= maxQueued {
		return Limited
	}
	d.NextNonce = max(d.NextNonce, q.Mined)
	d.NonceQueue = append(d.NonceQueue, Slot{Nonce: d.NextNonce, From: q.From, To: q.To, Authorization: t.cmd.Nonce})
	d.NextNonce++
	return Done
}
