package market

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// uniswap has the events of Uniswap v4, whose build is not ours to keep.
var uniswap = map[string]string{
	"PoolManager": `[
	{"type":"event","name":"Initialize","inputs":[{"name":"id","type":"bytes32","indexed":true},{"name":"currency0","type":"address","indexed":true},{"name":"currency1","type":"address","indexed":true},{"name":"fee","type":"uint24"},{"name":"tickSpacing","type":"int24"},{"name":"hooks","type":"address"},{"name":"sqrtPriceX96","type":"uint160"},{"name":"tick","type":"int24"}]},
	{"type":"event","name":"ModifyLiquidity","inputs":[{"name":"id","type":"bytes32","indexed":true},{"name":"sender","type":"address","indexed":true},{"name":"tickLower","type":"int24"},{"name":"tickUpper","type":"int24"},{"name":"liquidityDelta","type":"int256"},{"name":"salt","type":"bytes32"}]},
	{"type":"event","name":"Swap","inputs":[{"name":"id","type":"bytes32","indexed":true},{"name":"sender","type":"address","indexed":true},{"name":"amount0","type":"int128"},{"name":"amount1","type":"int128"},{"name":"sqrtPriceX96","type":"uint160"},{"name":"liquidity","type":"uint128"},{"name":"tick","type":"int24"},{"name":"fee","type":"uint24"}]}]`,
	"PositionManager": `[
	{"type":"event","name":"Transfer","inputs":[{"name":"from","type":"address","indexed":true},{"name":"to","type":"address","indexed":true},{"name":"id","type":"uint256","indexed":true}]}]`,
}

// abiOf is the ABI of a contract that a script may name.
func abiOf(name string) abi.ABI {
	var (
		contract abi.ABI
		err      error
	)
	if text, ok := uniswap[name]; ok {
		contract, err = abi.JSON(strings.NewReader(text))
	} else {
		contract, err = contracts.ABI(name)
	}
	if err != nil {
		panic(err)
	}
	return contract
}

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
		histogram := deals.Histogram(h)
		row, err := stats.ReadBuckets(v, histogram)
		if err != nil {
			t.Fatal(err)
		}
		if !stats.Buckets(row, func(bucket [2]byte, n uint64) {
			fmt.Fprintf(&out, "%s, bucket %v: %d =", name, bucket, n)
			err = v.ScanIndex(deals.IndexNumber, deals.BucketPrefix(histogram, bucket), nil, func(entry, _ []byte) bool {
				fmt.Fprintf(&out, " %s", deals.NumberOf(entry).Dec())
				return true
			})
			out.WriteByte('\n')
		}) || err != nil {
			t.Fatal(err)
		}
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
	return out.String()
}

func pool(key []byte) string { return short(common.BytesToHash(key[:32]).Hex()) }

func signedText(v *uint256.Int) string {
	if v.Sign() < 0 {
		return "-" + new(uint256.Int).Neg(v).Dec()
	}
	return v.Dec()
}
