package ingest

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// TestLedgerParts: whoever holds how much, the parts of a ledger have every share once, in order, and survive their encoding.
func TestLedgerParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 7, topics.MaxShares - 1, topics.MaxShares, topics.MaxShares + 1, 2*topics.MaxShares + 3}).Draw(t, "holders")
		l := &ledger{token: common.Address{1}, origin: common.Hash{2}, held: held{}}
		for i := range n {
			l.held[tokenOf(uint64(i)*0x9e3779b97f4a7c15)] = *uint256.NewInt(uint64(i + 1))
		}
		at := topics.BlockRef{Number: 7, Hash: common.Hash{3}, Timestamp: 8}
		parts := l.parts(at)
		var last common.Address
		shares := 0
		for i, part := range parts {
			raw, err := topics.DecodeRaw(topics.AppendRaw(nil, part))
			if err != nil {
				t.Fatal(err)
			}
			got := raw.(*topics.Ledger)
			if got.Block != at || got.Token != l.token || got.First != l.origin || got.Fault != "" || int(got.Part) != i || int(got.Parts) != len(parts) {
				t.Fatalf("part %d of %d is %+v", i, len(parts), got)
			}
			for _, s := range got.Shares {
				if s.Account.Cmp(last) <= 0 || l.held[s.Account] != s.Amount {
					t.Fatalf("%s has %s after %s", s.Account, s.Amount.Dec(), last)
				}
				last = s.Account
			}
			shares += len(got.Shares)
		}
		if shares != n {
			t.Fatalf("%d shares of %d", shares, n)
		}
	})
}

// TestLedgerOfTooMany: a ledger that is too large to be applied with one block says so, and has no shares.
func TestLedgerOfTooMany(t *testing.T) {
	for _, n := range []uint64{topics.MaxHolders, topics.MaxHolders + 1} {
		l := &ledger{held: held{}}
		for i := range n {
			l.held[tokenOf(i)] = *uint256.NewInt(1)
		}
		l.end()
		parts := l.parts(topics.BlockRef{})
		if n > topics.MaxHolders && (len(parts) != 1 || parts[0].Fault != faultTooMany || len(parts[0].Shares) > 0) || n == topics.MaxHolders && l.fault != "" {
			t.Errorf("%d holders: %d parts, fault %q", n, len(parts), l.fault)
		}
	}
}

// TestLedgerHoldsNoMore: while it is summed up a ledger has no more accounts in memory than its bound.
func TestLedgerHoldsNoMore(t *testing.T) {
	token := common.Address{1}
	l := &ledger{decoder: contracts.NewDecoder(contracts.Deployment{}), token: token, held: held{}}
	for i := range uint64(maxHeld) {
		l.held[tokenOf(i)] = *uint256.NewInt(1)
	}
	l.supply.SetUint64(maxHeld)
	give := func(from, to common.Address) {
		l.add(&topics.Log{Address: token, Data: common.LeftPadBytes([]byte{1}, 32), Topics: []common.Hash{
			contracts.TransferTopic(), common.BytesToHash(from[:]), common.BytesToHash(to[:]),
		}}, &follow.Header{})
	}
	give(tokenOf(0), tokenOf(maxHeld)) // one comes, one goes
	if l.fault != "" || len(l.held) != maxHeld {
		t.Fatalf("%d accounts, fault %q", len(l.held), l.fault)
	}
	give(common.Address{}, tokenOf(maxHeld+1))
	if l.fault != faultTooMany {
		t.Errorf("%d accounts, fault %q", len(l.held), l.fault)
	}
}
