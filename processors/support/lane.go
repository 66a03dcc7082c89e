package support

import "slices"

// maxLane bounds the relayer's transactions that are not final.
const maxLane = 256

// takeNonce assigns the relayer's next nonce to an authorization: a single sequence for all processes with its
// key, which survives each of them. A repeated request gets the same nonce, until the chain has passed it.
func (t *execution) takeNonce() Outcome {
	q, d := t.cmd.Lane, t.desk
	d.Lane = slices.DeleteFunc(d.Lane, func(s Slot) bool { return s.Nonce < q.Deep })
	if _, has := d.Slot(q.From, t.cmd.Nonce, q.Mined); has {
		return Exists
	}
	if len(d.Lane) >= maxLane {
		return Limited
	}
	d.NextNonce = max(d.NextNonce, q.Mined)
	d.Lane = append(d.Lane, Slot{Nonce: d.NextNonce, From: q.From, To: q.To, Authorization: t.cmd.Nonce})
	d.NextNonce++
	return Done
}
