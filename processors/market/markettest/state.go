package markettest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/holders"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

func (h *harness) view(t *testing.T) state.View {
	snap := h.store.Snapshot()
	t.Cleanup(snap.Release)
	v := snap.View(topics.BlockRef{Number: h.number, Timestamp: h.time})
	t.Cleanup(v.Close)
	return v
}

func decoded[T any](t *testing.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (h *harness) lists(t *testing.T) string {
	view := h.view(t)
	var out strings.Builder
	listAs := func(name string, index byte, prefix []byte, text func([]byte) string) {
		fmt.Fprintf(&out, "%s:", name)
		err := view.ScanIndex(index, prefix, nil, func(entry, _ []byte) bool {
			fmt.Fprintf(&out, " %s", text(entry))
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
	}
	list := func(name string, index byte, prefix []byte) {
		listAs(name, index, prefix, func(entry []byte) string { return deals.ID(entry).Dec() })
	}
	for sort, name := range deals.SortNames {
		list(name, deals.IndexListing+byte(sort), nil)
	}
	for s, name := range []string{"listed", "funded", "reclaimed", "claimed", "cancelled"} {
		list(name, deals.IndexState, deals.StatePrefix(contracts.DealState(s)))
	}
	for _, wallet := range []string{"0xb0", "0x1e"} {
		list("wallet "+wallet, deals.IndexWallet, deals.WalletPrefix(common.HexToAddress(wallet)))
	}
	for _, lender := range []string{"0xb0", "0x1e"} {
		bids := func(entry []byte) string {
			return fmt.Sprintf("%s/%s", deals.ID(entry).Dec(), deals.ID(entry[20:52]).Dec())
		}
		listAs("bids of "+lender, deals.IndexLenderBid, deals.LenderPrefix(common.HexToAddress(lender)), bids)
	}
	list("funded on 0x5707c", deals.IndexFundedAsset, deals.AssetPrefix(common.HexToAddress("0x5707c")))
	list("open positions", deals.IndexOpenPosition, nil)
	out.WriteString("open bids:" + openBids(t, view) + "\n")
	return out.String()
}

// openBids are the bids that are summed up, of deals from the newest on.
func openBids(t *testing.T, v state.View) string {
	t.Helper()
	type terms struct {
		deal string
		hash common.Hash
	}
	var order []terms
	err := v.Scan(deals.Bids, nil, nil, func(key, row []byte) bool {
		var b topics.Bid
		decoded(t, b, b.UnmarshalBinary(row))
		if at := (terms{string(key[:32]), b.TermsHash}); !slices.Contains(order, at) {
			order = append(order, at)
		}
		return true
	})
	var out strings.Builder
	for _, at := range order {
		ids, err := deals.OpenBids(v, []byte(at.deal), at.hash)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(ids, func(a, b uint256.Int) int { return a.Cmp(&b) })
		for _, id := range ids {
			fmt.Fprintf(&out, " %s/%s", deals.ID([]byte(at.deal)).Dec(), id.Dec())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (h *harness) stats(t *testing.T) string {
	v := h.view(t)
	var out strings.Builder
	row, err := stats.ReadTotals(v)
	if err != nil {
		t.Fatal(err)
	}
	totals, err := stats.Decode[stats.Totals](row)
	decoded(t, totals, err)
	fmt.Fprintf(&out, "states: %v\nvolume=%s fees=%s\n", totals.ByState, totals.Volume.Dec(), totals.Fees.Dec())
	for at := h.time - 3; at <= h.time; at++ {
		row, err := stats.ReadFlow(v, at)
		if err != nil {
			t.Fatal(err)
		}
		flow, err := stats.Decode[stats.Flow](row)
		decoded(t, flow, err)
		fmt.Fprintf(&out, "by %d: volume=%s fees=%s\n", at, flow.Volume.Dec(), flow.Fees.Dec())
	}
	err = stats.ScanCollateral(v, func(key, row []byte) bool {
		lane, token := stats.CollateralOf(key)
		amount, err := stats.Decode[stats.Amount](row)
		decoded(t, amount, err)
		fmt.Fprintf(&out, "collateral lane %d %s: %s\n", lane, short(token.Hex()), amount.Raw.Dec())
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for h, name := range []string{"cost of 7 days", "cost of 21 days", "time to fund"} {
		fmt.Fprintf(&out, "%s:", name)
		numbers(t, v, []byte{byte(h)}, &out)
		out.WriteByte('\n')
	}
	for _, wallet := range []string{"0xb0", "0x1e"} {
		fmt.Fprintf(&out, "wallet %s:", wallet)
		prefix := deals.WalletPrefix(common.HexToAddress(wallet))
		err := v.ScanIndex(deals.IndexWallet, prefix, nil, func(entry, value []byte) bool {
			w, err := deals.DecodeWalletEntry(value)
			decoded(t, w, err)
			fmt.Fprintf(&out, " %s(%d %v %v %s %s %s)", deals.ID(entry).Dec(), w.State, w.Borrower, w.Lender, w.Cap.Dec(), w.Price.Dec(), w.Fee.Dec())
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// numbers prints the numbers below a node of a histogram, each as often as it is counted.
func numbers(t *testing.T, v state.View, node []byte, out *strings.Builder) uint64 {
	t.Helper()
	row, err := stats.NewCountsReader(v).Read(node)
	if err != nil {
		t.Fatal(err)
	}
	if row == nil {
		return 0
	}
	var sum uint64
	if !stats.Counts(row, func(branch byte, n uint64) {
		sum += n
		if path := append(slices.Clone(node), branch); !stats.Whole(path) {
			if below := numbers(t, v, path, out); below != n {
				t.Errorf("node %x counts %d, its branch %d", path, below, n)
			}
		} else {
			fmt.Fprint(out, strings.Repeat(" "+stats.NumberAt(path).Dec(), int(n)))
		}
	}) {
		t.Fatalf("node %x is malformed: %x", node, row)
	}
	return sum
}

func (h *harness) days(t *testing.T) string {
	v := h.view(t)
	var out strings.Builder
	decoded(t, 0, stats.ScanCollateralAfter(v, 0, func(day uint64, key []byte, raw *uint256.Int) {
		lane, token := stats.CollateralOf(key)
		fmt.Fprintf(&out, "day %d collateral lane %d %s: %s\n", day, lane, short(token.Hex()), raw.Dec())
	}))
	decoded(t, 0, stats.ScanOpenAfter(v, nil, func(day uint64, id common.Hash, was bool) bool {
		fmt.Fprintf(&out, "day %d position %s open: %t\n", day, short(id.Hex()), was)
		return true
	}))
	decoded(t, 0, liquidity.ScanPoolsAfter(v, 0, func(day uint64, id common.Hash, row []byte) {
		var p topics.Pool
		decoded(t, 0, p.UnmarshalBinary(row))
		fmt.Fprintf(&out, "day %d pool %s: initialized=%t tick=%d liquidity=%s listed=%t\n", day, short(id.Hex()), p.Initialized, p.Tick, p.Liquidity.Dec(), p.Limits != nil)
	}))
	decoded(t, 0, liquidity.ScanLiquidityAfter(v, common.Hash{}, 0, func(id common.Hash, day uint64, row []byte) bool {
		var p topics.PositionLiquidity
		decoded(t, 0, p.UnmarshalBinary(row))
		fmt.Fprintf(&out, "day %d liquidity of %s: %s\n", day, short(id.Hex()), p.Liquidity.Dec())
		return true
	}))
	return out.String()
}

func (h *harness) pools(t *testing.T) string {
	v := h.view(t)
	var out strings.Builder
	err := v.Scan(liquidity.Ticks, nil, nil, func(key, row []byte) bool {
		tick, err := liquidity.DecodeTick(row)
		decoded(t, tick, err)
		fmt.Fprintf(&out, "pool %s tick %d: gross=%s net=%s\n", pool(key), liquidity.TickOf(key), tick.Gross.Dec(), signedText(&tick.Net))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []struct {
		name  string
		index byte
		text  func(entry []byte) string
	}{
		{"allowed", liquidity.IndexAllowedPool, pool},
		{"positions", liquidity.IndexPositionOwner, func(e []byte) string {
			return fmt.Sprintf("%s/%s", short(common.BytesToAddress(e[:20]).Hex()), new(uint256.Int).SetBytes(e[20:]))
		}},
		{"stakes", liquidity.IndexStakeOwner, func(e []byte) string {
			return fmt.Sprintf("%s/%s", short(common.BytesToAddress(e[:20]).Hex()), new(uint256.Int).SetBytes(e[20:52]))
		}},
		{"seeds", liquidity.IndexSeed, func(e []byte) string { return new(uint256.Int).SetBytes(e[32:]).String() }},
	} {
		fmt.Fprintf(&out, "%s:", list.name)
		if err := v.ScanIndex(list.index, nil, nil, func(entry, _ []byte) bool {
			fmt.Fprintf(&out, " %s", list.text(entry))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		out.WriteByte('\n')
	}
	for _, table := range []*state.Table{prices.Seconds, prices.Hours} {
		err = v.Scan(table, nil, nil, func(key, row []byte) bool {
			var o topics.Observation
			if err := o.UnmarshalBinary(row); err != nil {
				t.Fatal(err)
			}
			if table == prices.Seconds && !bytes.Equal(key, prices.Key(o.PoolID, o.At)) {
				t.Errorf("the observation at %d is not under its key", o.At)
			}
			fmt.Fprintf(&out, "%s: pool %s at %d tick %d\n", table.Name, pool(key), o.At, o.Tick)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err = v.Scan(prices.Volumes, nil, nil, func(key, row []byte) bool {
		var sum prices.Volume
		decoded(t, 0, sum.UnmarshalBinary(row))
		fmt.Fprintf(&out, "volume: pool %s in the hour from %d %s and %s\n", pool(key), prices.At(key), sum[0].Dec(), sum[1].Dec())
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (h *harness) holders(t *testing.T) string {
	var out strings.Builder
	err := h.view(t).ScanIndex(holders.IndexAmount, nil, nil, func(_, row []byte) bool {
		var held topics.Holding
		decoded(t, 0, held.UnmarshalBinary(row))
		fmt.Fprintf(&out, "%s: %s has %s\n", short(held.Token.Hex()), short(held.Account.Hex()), held.Amount.Dec())
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func pool(key []byte) string { return short(common.BytesToHash(key[:32]).Hex()) }

func signedText(v *uint256.Int) string {
	if v.Sign() < 0 {
		return "-" + new(uint256.Int).Neg(v).Dec()
	}
	return v.Dec()
}
