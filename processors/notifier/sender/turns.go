package sender

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/ethereum/go-ethereum/common"
)

// turns are the due alerts of deals that a scan finds, in the order of starting them. Urgent ones go first: a deadline
// within an hour before one within six, and so on. Among the equally urgent, each wallet has one started before any has
// its second, beginning with the wallet whose last one is longest ago. Of a wallet's alerts the nearest deadline is
// first.
type turns struct {
	now   uint64 // block time
	due   map[common.Address][]turn
	order []common.Address // the oldest first
	n     int              // of all
	last  map[common.Address]uint64
	count uint64
}

// turn is an alert that is due.
type turn struct {
	row      []byte
	deadline uint64 // block time
}

const (
	maxWalletDue = 64      // alerts of a wallet that a scan considers
	maxDue       = 1 << 17 // alerts of all wallets
)

// urgencies are the times to a deadline within which it is as urgent as any other, in seconds.
var urgencies = []uint64{3600, 6 * 3600, 24 * 3600}

// urgency is how urgent a deadline is, the most urgent first.
func (t *turns) urgency(deadline uint64) int {
	urgency, _ := slices.BinarySearch(urgencies, deadline-min(t.now, deadline))
	return urgency
}

// begin begins a scan.
func (t *turns) begin(now uint64) {
	t.now, t.due, t.order, t.n = now, map[common.Address][]turn{}, nil, 0
}

// add adds a row, its deadline and the end of the grace period, big-endian; empty: unknown, and then it comes first.
func (t *turns) add(row, times []byte) {
	var by, grace uint64
	if len(times) >= 8 {
		by = binary.BigEndian.Uint64(times)
	}
	if len(times) == 16 {
		grace = binary.BigEndian.Uint64(times[8:])
	}
	if by != 0 && by <= t.now {
		if by = grace; by <= t.now { // it has passed too, or an older build did not write it
			by = t.now + urgencies[len(urgencies)-1]
		}
	}
	wallet := common.Address(row[:common.AddressLength])
	mine := t.due[wallet]
	full := len(mine) == maxWalletDue
	if full && by >= mine[maxWalletDue-1].deadline || !full && t.n == maxDue {
		return
	}
	if full {
		mine = mine[:maxWalletDue-1]
		t.n--
	}
	if len(mine) == 0 {
		t.order = append(t.order, wallet)
	}
	at, _ := slices.BinarySearchFunc(mine, by+1, func(o turn, by uint64) int { return cmp.Compare(o.deadline, by) })
	t.due[wallet] = slices.Insert(mine, at, turn{slices.Clone(row), by})
	t.n++
}

// list lists rows by turns.
func (t *turns) list(most int) (rows [][]byte) {
	last := make(map[common.Address]uint64, len(t.last)) // wallets without due alerts are dropped
	for wallet, at := range t.last {
		if t.due[wallet] != nil {
			last[wallet] = at
		}
	}
	t.last = last
	slices.SortStableFunc(t.order, func(a, b common.Address) int { return cmp.Compare(last[a], last[b]) })
	for urgency := range len(urgencies) + 1 {
		for more := true; more; {
			more = false
			for _, wallet := range t.order {
				if mine := t.due[wallet]; len(mine) > 0 && t.urgency(mine[0].deadline) == urgency {
					if len(rows) == most {
						return rows
					}
					rows, t.due[wallet], more = append(rows, mine[0].row), mine[1:], true
				}
			}
		}
	}
	return rows
}

// took notes that a wallet has had a turn.
func (t *turns) took(wallet common.Address) {
	if t.last == nil {
		t.last = map[common.Address]uint64{}
	}
	t.count++
	t.last[wallet] = t.count
}
