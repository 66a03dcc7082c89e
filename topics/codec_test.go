package topics

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
	"github.com/twmb/avro"
	"pgregory.net/rapid"
)

// Generators of everything that is encoded.
var (
	genHash    = rapid.Custom(func(t *rapid.T) common.Hash { return common.Hash(draw32(t)) })
	genAddress = rapid.Custom(func(t *rapid.T) (a common.Address) { b := draw32(t); copy(a[:], b[:]); return a })
	genWord    = rapid.Custom(func(t *rapid.T) uint256.Int {
		b := draw32(t)
		return *new(uint256.Int).SetBytes(b[rapid.IntRange(0, 32).Draw(t, "leading zeros"):])
	})
	genRef = rapid.Custom(func(t *rapid.T) BlockRef {
		return BlockRef{Number: rapid.Uint64().Draw(t, "number"), Hash: genHash.Draw(t, "hash"), Timestamp: rapid.Uint64().Draw(t, "timestamp")}
	})
	genShare = rapid.Custom(func(t *rapid.T) Share {
		return Share{Account: genAddress.Draw(t, "account"), Amount: genWord.Draw(t, "amount")}
	})
	genRaw = rapid.Custom(func(t *rapid.T) Raw {
		switch rapid.IntRange(0, 6).Draw(t, "record") {
		case 0:
			return &Log{
				Block: genRef.Draw(t, "block"), TxHash: genHash.Draw(t, "tx"), TxIndex: rapid.Uint32().Draw(t, "index"),
				LogIndex: rapid.Uint32().Draw(t, "log"), Address: genAddress.Draw(t, "address"),
				Topics: rapid.SliceOfN(genHash, 0, 4).Draw(t, "topics"), Data: rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
			}
		case 1:
			return &Probe{
				Block: genRef.Draw(t, "block"), LogIndex: rapid.Uint32().Draw(t, "log"), Token: genAddress.Draw(t, "token"),
				UIMultiplier: rapid.Ptr(genWord, true).Draw(t, "ui"), NewUIMultiplier: rapid.Ptr(genWord, true).Draw(t, "new"),
				EffectiveAt: rapid.Ptr(rapid.Uint64(), true).Draw(t, "at"), Paused: rapid.Ptr(rapid.Bool(), true).Draw(t, "paused"),
			}
		case 2:
			return &BlockEnd{
				Block: genRef.Draw(t, "block"), Parent: genHash.Draw(t, "parent"), Records: rapid.Uint32().Draw(t, "records"),
				Finalized: rapid.Uint64().Draw(t, "finalized"), Head: rapid.Uint64().Draw(t, "head"), Commit: rapid.Bool().Draw(t, "commit"),
			}
		case 3:
			return &BlockEnd{Block: genRef.Draw(t, "block"), Commit: true, Previous: genRef.Draw(t, "previous"), Linked: true}
		case 4:
			return &BlockEnd{Block: genRef.Draw(t, "block"), Previous: genRef.Draw(t, "previous"), Linked: true, Safe: rapid.Uint64Min(1).Draw(t, "safe")}
		case 5:
			return &Ledger{
				Block: genRef.Draw(t, "block"), Token: genAddress.Draw(t, "token"), Part: rapid.Uint32().Draw(t, "part"),
				Parts: rapid.Uint32().Draw(t, "parts"), First: genHash.Draw(t, "first"), Fault: rapid.String().Draw(t, "fault"),
				Shares: rapid.SliceOfN(genShare, 1, 5).Draw(t, "shares"), Since: rapid.Uint64().Draw(t, "since"),
			}
		default:
			return &BlockRevert{Block: genRef.Draw(t, "block"), Head: genRef.Draw(t, "head")}
		}
	})
)

func draw32(t *rapid.T) (b [32]byte) {
	copy(b[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes"))
	return b
}

func library(t testing.TB, s *Schema) *avro.Schema {
	t.Helper()
	parsed, err := avro.Parse(s.Text())
	if err != nil {
		t.Fatalf("schema %s: %v", s.Name, err)
	}
	return parsed
}

// reencode reads a value with the library and its schema and writes it again.
func reencode(t rapid.TB, schemas map[*Schema]*avro.Schema, value []byte) (map[string]any, []byte) {
	t.Helper()
	s, body, err := SplitHeader(value)
	if err != nil {
		t.Fatal(err)
	}
	var generic any
	rest, err := schemas[s].Decode(body, &generic)
	if err != nil || len(rest) > 0 {
		t.Fatalf("the library reads %s: %v, %d bytes left", s.Name, err, len(rest))
	}
	again, err := schemas[s].AppendEncode(AppendHeader(nil, s), generic)
	if err != nil {
		t.Fatalf("the library writes %s: %v", s.Name, err)
	}
	return generic.(map[string]any), again
}

func libraries(t testing.TB) map[*Schema]*avro.Schema {
	all := map[*Schema]*avro.Schema{}
	for _, s := range schemas {
		all[s] = library(t, s)
	}
	return all
}

// The hand-written raw codec and the library agree on every byte, in both directions.
func TestRawEqualsTheLibrary(t *testing.T) {
	schemas := libraries(t)
	rapid.Check(t, func(t *rapid.T) {
		raw := genRaw.Draw(t, "raw")
		value := AppendRaw([]byte("kept"), raw)
		if !bytes.HasPrefix(value, []byte("kept")) {
			t.Fatal("what was there is gone")
		}
		value = value[len("kept"):]
		_, again := reencode(t, schemas, value)
		if !bytes.Equal(value, again) {
			t.Fatalf("written\n%x, by the library\n%x", value, again)
		}
		got, err := DecodeRaw(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(raw, got, cmpEmpty); diff != "" {
			t.Fatal(diff)
		}
	})
}

// cmpEmpty: on the wire there is no difference between no bytes and none.
var cmpEmpty = cmp.FilterValues(func(a, b any) bool { return isEmptySlice(a) && isEmptySlice(b) }, cmp.Ignore())

func isEmptySlice(v any) bool {
	switch v := v.(type) {
	case []byte:
		return len(v) == 0
	case []common.Hash:
		return len(v) == 0
	}
	return false
}

type row interface {
	AppendBinary(b []byte) ([]byte, error)
	UnmarshalBinary(data []byte) error
}

func TestDecimalEqualsUint256(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := genWord.Draw(t, "v")
		want := v.Dec()
		in := input{b: appendDecimal(nil, &v)}
		if got := string(in.bytes()); got != want || in.end() != nil {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}

func FuzzDecodeRaw(f *testing.F) {
	for i := range 40 {
		f.Add(AppendRaw(nil, genRaw.Example(i)))
	}
	f.Add([]byte{0, 0, 0, 0, 99, 1})
	f.Fuzz(func(t *testing.T, value []byte) {
		raw, err := DecodeRaw(value)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnknownSchema) {
				t.Errorf("error of no kind: %v", err)
			}
			return
		}
		// A varint may be longer than it must be, so the bytes may differ; what they say may not.
		again, err := DecodeRaw(AppendRaw(nil, raw))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(raw, again, cmpEmpty); diff != "" {
			t.Error(diff)
		}
	})
}

// Whatever a ledger says, its encoding says too, and no part of it is a ledger.
func FuzzLedger(f *testing.F) {
	f.Add(uint64(1), uint32(0), uint32(1), []byte{}, "", []byte{})
	f.Add(uint64(1<<63), uint32(7), uint32(9), []byte{1}, "too many holders", bytes.Repeat([]byte{0xff, 0, 0x80}, 60))
	f.Fuzz(func(t *testing.T, number uint64, part, parts uint32, first []byte, fault string, raw []byte) {
		l := &Ledger{
			Block: BlockRef{Number: number, Hash: common.BytesToHash(raw), Timestamp: number / 2}, Token: common.BytesToAddress(raw),
			Part: part, Parts: parts, First: common.BytesToHash(first), Fault: strings.ToValidUTF8(fault, ""), Since: uint64(part),
		}
		const each = common.AddressLength + common.HashLength
		for ; len(raw) >= each && len(l.Shares) < MaxShares; raw = raw[each:] {
			s := Share{Account: common.Address(raw[:common.AddressLength])}
			s.Amount.SetBytes(raw[common.AddressLength:each])
			l.Shares = append(l.Shares, s)
		}
		value := AppendRaw(nil, l)
		got, err := DecodeRaw(value)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(Raw(l), got, cmpEmpty); diff != "" {
			t.Error(diff)
		}
		for _, n := range []int{0, len(value) / 2, len(value) - 1} {
			if cut, err := DecodeRaw(value[:n]); err == nil {
				t.Fatalf("%d bytes of %d are %+v", n, len(value), cut)
			}
		}
	})
}

// A ledger of more shares than a part may have is none.
func TestLedgerOfTooManyShares(t *testing.T) {
	l := &Ledger{Shares: make([]Share, MaxShares+1)}
	if raw, err := DecodeRaw(AppendRaw(nil, l)); !errors.Is(err, ErrMalformed) {
		t.Errorf("%T of %d shares: %v", raw, len(l.Shares), err)
	}
	l.Shares = l.Shares[1:]
	if raw, err := DecodeRaw(AppendRaw(nil, l)); err != nil || len(raw.(*Ledger).Shares) != MaxShares {
		t.Errorf("%T of %d shares: %v", raw, len(l.Shares), err)
	}
}

// Every schema has its file and every file its schema; IDs are unique and for good.
func TestSchemaFilesAndRegistryAgree(t *testing.T) {
	files, err := filepath.Glob("schemas/*.avsc")
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]bool{}
	ids := map[uint32]string{}
	for _, s := range schemas {
		byName[s.Name] = true
		if other, ok := ids[s.ID]; ok {
			t.Errorf("%s and %s share ID %d", s.Name, other, s.ID)
		}
		ids[s.ID] = s.Name
		text, err := os.ReadFile("schemas/" + s.Name + ".avsc")
		if err != nil || string(text) != s.Text() {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	for _, f := range files {
		if name := strings.TrimSuffix(filepath.Base(f), ".avsc"); !byName[name] {
			t.Errorf("%s is in no registry", f)
		}
	}
	for id, name := range map[uint32]string{
		1: "raw_log", 2: "raw_probe", 3: "raw_block_end", 4: "raw_block_revert", 5: "raw_block_end_linked",
		10: "ent_deal", 11: "ent_bid", 12: "ent_balance", 13: "ent_asset", 20: "evt_deals", 21: "evt_balances", 22: "evt_assets",
		23: "evt_liquidity", 24: "evt_epochs", 25: "evt_burns", 30: "ent_drip", 31: "ent_reward", 32: "ent_epoch", 33: "ent_burn", 34: "ent_pool",
		35: "ent_observation", 36: "ent_position", 37: "ent_position_liquidity", 38: "ent_staking", 39: "ent_stake", 40: "ent_tick",
	} {
		if ids[id] != name {
			t.Errorf("ID %d is %q; consumers have it as %q", id, ids[id], name)
		}
	}
}

// Reference values of Kafka's own murmur2 partitioner.
func TestPartition(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%s) = %d, want %d", key, got, want)
		}
		if got := Partition([]byte(key), 16); got != (want&0x7fffffff)%16 {
			t.Errorf("partition of %s: %d", key, got)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("ent", AppendDeal(nil, benchDeal, benchRef))
	f.Add("raw", AppendRaw(nil, genRaw.Example(3)))
	f.Add("ctl", []byte(`{"role":"owner"}`))
	f.Add("cl", []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, kind string, value []byte) {
		v, err := Text(Kind(kind), value)
		if err != nil {
			return
		}
		if _, err := json.Marshal(v); err != nil {
			t.Errorf("%v is not JSON: %v", v, err)
		}
	})
}
