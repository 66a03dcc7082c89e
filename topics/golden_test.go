package topics

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// Rows are on disk and in changelogs, messages at consumers: their bytes are fixed for good.
// LIENSTREAM_REWRITE=1 writes the file for an entity that is new.
func TestBytesOfEntitiesAreFixed(t *testing.T) {
	const file = "testdata/entities.golden"
	var out strings.Builder
	for _, r := range entityRows {
		for seed := range uint64(8) {
			row := r.fresh()
			rng := rand.New(rand.NewPCG(seed, 1))
			fillByChance(rng, reflect.ValueOf(row).Elem())
			data, err := row.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			at := BlockRef{Number: rng.Uint64N(1 << 40), Hash: common.Hash{31: byte(seed)}, Timestamp: rng.Uint64N(1 << 40)}
			fmt.Fprintf(&out, "%T %d\n row %x\n message %x\n", row, seed, data, r.message(row, at))
		}
	}
	if os.Getenv("LIENSTREAM_REWRITE") != "" {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("encoded otherwise than before (-before +now):\n%s", diff)
	}
}

// fillByChance sets every field by chance, each to zero now and then.
func fillByChance(rng *rand.Rand, v reflect.Value) {
	if v.Kind() != reflect.Struct && rng.IntN(5) == 0 {
		return
	}
	some := func(b []byte) []byte {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	switch x := v.Addr().Interface().(type) {
	case *uint256.Int:
		x.SetBytes(some(make([]byte, rng.IntN(33))))
		return
	case *common.Address:
		some(x[:])
		return
	case *common.Hash:
		some(x[:])
		return
	case *contracts.Kind, *contracts.DripSource:
		v.SetUint(1)
		return
	case *contracts.Lane, *contracts.DealState, *contracts.BidState, *contracts.BalanceKind:
		v.SetUint(rng.Uint64N(3))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fillByChance(rng, field)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillByChance(rng, v.Elem())
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("%x", some(make([]byte, rng.IntN(90)))))
	case reflect.Int32:
		v.SetInt(int64(int32(rng.Uint32())))
	default:
		v.SetUint(rng.Uint64() >> rng.IntN(64) & (1<<v.Type().Bits() - 1))
	}
}
