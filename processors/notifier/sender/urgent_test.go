package sender

import (
	"encoding/binary"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
)

// What is urgent goes before what is not, however many wallets have that; of the equally urgent wallets take turns.
func TestUrgentGoesFirst(t *testing.T) {
	const now, others = 2_000_000_000, 5000
	var all turns
	var deal byte
	add := func(wallet common.Address, left int) []byte {
		deal++
		row := notifier.Address{Wallet: wallet, Channel: notifier.Email, Subject: common.Hash{deal}, Stage: notifier.Before48}.Row()
		all.add(row, binary.BigEndian.AppendUint64(nil, uint64(now+left)))
		return row
	}
	all.begin(now)
	ann, bob := common.Address{0xaa}, common.Address{0xbb}
	all.took(ann) // a wallet that had a turn comes after all that had none
	for i := range others {
		add(common.Address{1, byte(i >> 8), byte(i)}, 20*hourSeconds)
	}
	for i := range maxWalletDue + 5 {
		add(ann, -hourSeconds-i)
	}
	for i := range others {
		add(common.Address{2, byte(i >> 8), byte(i)}, 47*hourSeconds)
	}
	soon, later := add(ann, hourSeconds/2), add(ann, hourSeconds/2+60)
	bobs := add(bob, hourSeconds-10)
	// It comes late: the expiry has passed, and an hour of the grace period is left.
	cleos := notifier.Address{Wallet: common.Address{0xcc}, Channel: notifier.Email, Stage: notifier.Before1}.Row()
	all.add(cleos, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, now-60), now+hourSeconds))
	rows := all.list(maxStart)
	if len(rows) != maxStart {
		t.Fatalf("%d rows", len(rows))
	}
	for i, want := range [][]byte{bobs, cleos, soon, later} {
		if string(rows[i]) != string(want) {
			t.Errorf("%x is at place %d, not %x", rows[i], i, want)
		}
	}
	seen := map[common.Address]int{}
	for _, row := range rows[4:] {
		if row[0] == 2 {
			t.Fatal("what leaves two days goes before what leaves a day, or the grace period")
		}
		if seen[common.Address(row)]++; seen[common.Address(row)] > 1 {
			t.Fatalf("%x has a second turn before others have their first", row[:20])
		}
	}
}

const hourSeconds = 3600
