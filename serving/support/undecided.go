package support

import (
	"time"

	desk "github.com/lienstream/lienstream/processors/support"
)

// undecided counts the payments and refunds that are not final, and how old they are.
type undecided struct {
	now                  time.Time
	before, seen         map[moment]time.Time // when this process first saw a moment: until the last sweep, and in this one
	count                int
	oldest, oldestRefund time.Duration
}

// moment is a time in the row of a payment, by a broker's clock.
type moment struct {
	key driveKey
	at  int64
}

func (u *undecided) add(p *desk.Payment) {
	u.count++
	switch p.Status {
	case desk.StatusReserved, desk.StatusSent:
		u.oldest = max(u.oldest, u.age(p, p.ReservedAt))
	case desk.StatusFinal:
		u.oldestRefund = max(u.oldestRefund, u.age(p, p.Ticket.ReturnedAt))
	case desk.StatusPaid, desk.StatusReleased, desk.StatusVoid:
	}
}

// age is how long ago a time in the row of a payment is: at least for as long as this process has seen it, since a broker's
// clock may be ahead of ours.
func (u *undecided) age(p *desk.Payment, at int64) time.Duration {
	m := moment{driveKey{p.Authorization.From, p.Authorization.Nonce}, at}
	first, ok := u.before[m]
	if !ok {
		first = u.now
	}
	u.seen[m] = first
	return max(u.now.Sub(first), u.now.Sub(time.Unix(at, 0)))
}
