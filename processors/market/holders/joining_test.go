package holders_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/holders"
	"github.com/lienstream/lienstream/topics"
)

// TestPartsEqualOneLedger: however the parts of a ledger come, with whatever transfers and reorgs between them, holdings are
// those of a ledger that came at once, and nobody is said to hold anything before the last part.
func TestPartsEqualOneLedger(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := common.Address{7}
		genAccount := rapid.Custom(func(t *rapid.T) common.Address { return common.Address{rapid.ByteRange(0, 12).Draw(t, "account")} }) // one is zero
		genAmount := rapid.Uint64Range(0, 50)
		all := maps.Collect(func(yield func(common.Address, uint64) bool) {
			for range rapid.IntRange(0, 12).Draw(t, "holders") {
				if a := genAccount.Draw(t, "holder"); a != (common.Address{}) {
					yield(a, 1+genAmount.Draw(t, "share"))
				}
			}
		})
		shares := []topics.Share{}
		for _, a := range slices.SortedFunc(maps.Keys(all), common.Address.Cmp) {
			shares = append(shares, topics.Share{Account: a, Amount: *uint256.NewInt(all[a])})
		}
		size := rapid.IntRange(1, 5).Draw(t, "size")
		parts := slices.Collect(slices.Chunk(shares, size))
		if len(parts) == 0 {
			parts = [][]topics.Share{nil}
		}
		whole, split := openStore(t), openStore(t)
		number := uint64(0)
		block := func(fork byte) topics.BlockRef {
			return topics.BlockRef{Number: number, Hash: common.Hash{byte(number), fork}}
		}
		// apply applies a block with a part of the ledger, and then perhaps takes it back and applies another one.
		apply := func(store *state.Store, part *topics.Ledger, lost, kept []*contracts.TokenTransferred) {
			for fork, transfers := range [][]*contracts.TokenTransferred{lost, kept} {
				o := store.NewOverlay()
				at := block(byte(fork))
				o.Begin(at, true)
				for _, e := range transfers {
					if fault, err := holders.Family.Apply(o, topics.EventMeta{}, e); err != nil || fault != "" {
						t.Fatal(fault, err)
					}
				}
				if part != nil {
					p := *part
					p.Block = at
					if err := holders.ApplyLedger(o, &p); err != nil {
						t.Fatal(err)
					}
				}
				commit(t, store, o)
				if fork == 0 {
					o := store.NewOverlay()
					if err := o.Revert(at, false); err != nil {
						t.Fatal(err)
					}
					commit(t, store, o)
				}
			}
		}
		transfers := func(has map[common.Address]uint64) (some []*contracts.TokenTransferred) {
			for range rapid.IntRange(0, 4).Draw(t, "transfers") {
				e := &contracts.TokenTransferred{Token: token, From: genAccount.Draw(t, "from"), To: genAccount.Draw(t, "to")}
				amount := genAmount.Draw(t, "amount")
				if e.From != (common.Address{}) {
					amount = min(amount, has[e.From])
					has[e.From] -= amount
				}
				if e.To != (common.Address{}) {
					has[e.To] += amount
				}
				e.Amount = *uint256.NewInt(amount)
				some = append(some, e)
			}
			return some
		}
		more := rapid.IntRange(0, 3).Draw(t, "more")
		for i := range len(parts) + more {
			number++
			var lost, kept []*contracts.TokenTransferred
			if i > 0 {
				lost, kept = transfers(maps.Clone(all)), transfers(all)
			}
			var part, once *topics.Ledger
			if i < len(parts) {
				part = &topics.Ledger{Token: token, Part: uint32(i), Parts: uint32(len(parts)), Shares: parts[i], Since: 1}
			}
			if i == 0 {
				once = &topics.Ledger{Token: token, Parts: 1, Shares: shares}
			}
			apply(split, part, lost, kept)
			apply(whole, once, lost, kept)
			row := rowsOf(t, split, holders.Tokens)
			if i < len(parts)-1 && len(row) > 0 {
				t.Fatalf("after part %d of %d holders are known", i, len(parts))
			}
		}
		maps.DeleteFunc(all, func(_ common.Address, amount uint64) bool { return amount == 0 })
		for _, table := range holders.Family.Tables {
			a, b := rowsOf(t, whole, table), rowsOf(t, split, table)
			if !maps.EqualFunc(a, b, bytes.Equal) {
				t.Fatalf("%s: %x, and in parts %x", table.Name, a, b)
			}
			if table == holders.Holdings && len(a) != len(all) {
				t.Fatalf("%d rows of %d holders", len(a), len(all))
			}
			for key, row := range a {
				var h topics.Holding
				if table == holders.Holdings && (h.UnmarshalBinary(row) != nil || h.Amount != *uint256.NewInt(all[h.Account])) {
					t.Fatalf("row %x of %x", row, key)
				}
			}
		}
	})
}

func openStore(t *rapid.T) *state.Store {
	store, err := state.Open(state.Options{Dir: "state", Tables: holders.Family.Tables, FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func commit(t *rapid.T, store *state.Store, o *state.Overlay) {
	if err := errors.Join(o.Settle(0, 0, func(state.Event) {}), store.Commit(o, []byte("meta"))); err != nil {
		t.Fatal(err)
	}
}

func rowsOf(t *rapid.T, store *state.Store, table *state.Table) map[string][]byte {
	all := map[string][]byte{}
	if err := store.NewOverlay().Scan(table, nil, nil, func(key, row []byte) bool { all[string(key)] = bytes.Clone(row); return true }); err != nil {
		t.Fatal(err)
	}
	return all
}
