package support

import "slices"

// maxLane bounds what waits to be mined, or is not mined for good.
const maxLane = 256

// takeNonce gives an authorization the relayer's next nonce: one order for all processes with its key, that outlives
// each of them. Who asks again gets the same, until the chain is beyond it.
func (t *turn) takeNonce() Outcome {
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
