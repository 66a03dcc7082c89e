package topics

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
)

// entityRow is an entity with its message.
type entityRow struct {
	fresh   func() row
	message func(row, BlockRef) []byte
}

func entityRowOf[T any, P interface {
	*T
	row
}](appendMessage func([]byte, P, BlockRef) []byte) entityRow {
	return entityRow{
		fresh:   func() row { return P(new(T)) },
		message: func(r row, at BlockRef) []byte { return appendMessage(nil, r.(P), at) },
	}
}

// draw fills a row with anything that its types can hold.
func draw(t *rapid.T, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *uint256.Int:
		*x = genWord.Draw(t, "word")
		return
	case *common.Address:
		*x = genAddress.Draw(t, "address")
		return
	case *common.Hash:
		*x = genHash.Draw(t, "hash")
		return
	case *contracts.Kind, *contracts.DripSource:
		v.SetUint(rapid.Uint64Max(1).Draw(t, "enum"))
		return
	case *contracts.BidState, *contracts.BalanceKind:
		v.SetUint(rapid.Uint64Max(2).Draw(t, "enum"))
		return
	case *contracts.Lane:
		v.SetUint(rapid.Uint64Max(3).Draw(t, "enum"))
		return
	case *contracts.DealState:
		v.SetUint(rapid.Uint64Max(4).Draw(t, "enum"))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			draw(t, field)
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem())
		}
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.Int32:
		v.SetInt(int64(rapid.Int32().Draw(t, "int")))
	case reflect.String:
		v.SetString(rapid.String().Draw(t, "string"))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, "uint") & (1<<v.Type().Bits() - 1))
	default:
		panic(fmt.Sprintf("no generator for %s", v.Type()))
	}
}

func TestRowsComeBack(t *testing.T) {
	for _, r := range entityRows {
		t.Run(fmt.Sprintf("%T", r.fresh()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				want, got := r.fresh(), r.fresh()
				draw(t, reflect.ValueOf(want).Elem())
				data, err := want.AppendBinary(nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := got.UnmarshalBinary(data); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatal(diff)
				}
				for cut := range data {
					if err := got.UnmarshalBinary(data[:cut]); err == nil {
						t.Fatalf("read from %d of its %d bytes", cut, len(data))
					}
				}
				data[0]++
				if err := got.UnmarshalBinary(data); !errors.Is(err, ErrUnknownVersion) {
					t.Fatalf("another version: %v", err)
				}
			})
		})
	}
}

// The library reads every message, writes the same bytes, and has a value under a column for each field.
func TestMessagesEqualTheLibrary(t *testing.T) {
	schemas := libraries(t)
	for _, r := range entityRows {
		t.Run(fmt.Sprintf("%T", r.fresh()), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				row, at := r.fresh(), genRef.Draw(t, "at")
				draw(t, reflect.ValueOf(row).Elem())
				value := r.message(row, at)
				fields, again := reencode(t, schemas, value)
				if !bytes.Equal(value, again) {
					t.Fatalf("written\n%x, by the library\n%x", value, again)
				}
				if fields["block_number"] != int64(at.Number) || fields["block_timestamp"] != int64(at.Timestamp) {
					t.Fatalf("as of %v %v, want %d %d", fields["block_number"], fields["block_timestamp"], at.Number, at.Timestamp)
				}
			})
		})
	}
}

func TestMessagesNameTheirColumns(t *testing.T) {
	schemas := libraries(t)
	word := func(n uint64) uint256.Int { return *uint256.NewInt(n) }
	for _, c := range []struct {
		value []byte
		want  map[string]any
	}{
		{
			AppendDeal(nil, &Deal{ID: word(1), Cap: word(2), State: contracts.DealCancelledState}, BlockRef{}),
			map[string]any{"deal_id": "1", "cap": "2", "state": "CANCELLED", "lender": nil, "tx_funded": nil, "tx_settled": nil},
		},
		{
			AppendDrip(nil, &Drip{ID: word(1), DealID: word(2), Granted: word(9), Total: word(8), Claimed: word(7), CutAt: 6}, BlockRef{}),
			map[string]any{"drip_id": "1", "deal_id": "2", "token_id": nil, "granted": "9", "total": "8", "claimed": "7", "cut_at": int64(6), "source": "DEAL"},
		},
		{
			AppendEpoch(nil, &Epoch{N: 3, Reserved7: word(4), Reserved21: word(5), Released: word(6)}, BlockRef{}),
			map[string]any{"n": int64(3), "reserved7": "4", "reserved21": "5", "released": "6", "rate7": nil, "unspent": nil},
		},
		{
			AppendPool(nil, &Pool{Tick: -5, TickSpacing: 60, Fee: 3000, Liquidity: word(7), Limits: &PoolLimits{Allowed: true, MinLiquidity: word(8), MaxLiquidity: word(9)}}, BlockRef{}),
			map[string]any{"tick": int32(-5), "tick_spacing": int32(60), "fee": int64(3000), "liquidity": "7", "allowed": true, "min_liquidity": "8", "max_liquidity": "9"},
		},
		{
			AppendTick(nil, &Tick{Tick: -887220, Gross: word(5), Net: *new(uint256.Int).Neg(uint256.NewInt(5))}, BlockRef{}),
			map[string]any{"tick": int32(-887220), "liquidity_gross": "5", "liquidity_net": "-5"},
		},
		{
			AppendStake(nil, &Stake{TickLower: -1, TickUpper: 2, Weight: word(3), EmissionsEarned: word(4), CreatorFeeEarned: word(5), LastCheckpoint: 6, IsSeed: true}, BlockRef{}),
			map[string]any{"tick_lower": int32(-1), "tick_upper": int32(2), "weight": "3", "emissions_earned": "4", "creator_fee_earned": "5", "last_checkpoint": int64(6), "is_seed": true, "in_range": false},
		},
	} {
		fields, _ := reencode(t, schemas, c.value)
		for name, want := range c.want {
			if fields[name] != want {
				t.Errorf("%s is %v (%T), want %v", name, fields[name], fields[name], want)
			}
		}
	}
}

func TestSignedEqualsBigInt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genWord.Draw(t, "v")
		want := v.ToBig()
		if want.Bit(255) == 1 {
			want.Sub(want, new(big.Int).Lsh(big.NewInt(1), 256))
		}
		in := input{b: appendSigned(nil, &v)}
		if got := string(in.bytes()); got != want.String() || in.end() != nil {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}

func FuzzRows(f *testing.F) {
	for i, r := range entityRows {
		full := rapid.Custom(func(t *rapid.T) row {
			v := r.fresh()
			draw(t, reflect.ValueOf(v).Elem())
			return v
		})
		for seed := range 5 {
			data, _ := full.Example(seed).AppendBinary(nil)
			f.Add(byte(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		fresh := entityRows[int(which)%len(entityRows)].fresh
		r, again := fresh(), fresh()
		if err := r.UnmarshalBinary(data); err != nil {
			return
		}
		data, _ = r.AppendBinary(nil)
		if err := again.UnmarshalBinary(data); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, again); diff != "" {
			t.Error(diff)
		}
	})
}

func TestTickOutOfBounds(t *testing.T) {
	in := input{b: appendLong(nil, math.MaxInt32+1)}
	if in.int32(); !in.bad {
		t.Error("33 bits are read into 32")
	}
}
