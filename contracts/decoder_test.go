package contracts

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/google/go-cmp/cmp"
	"github.com/holiman/uint256"
)

// testDeployment has a different address for every contract.
func testDeployment() Deployment {
	d := Deployment{ChainID: 4663, StartBlock: 7, PoolID: common.HexToHash("0x77")}
	for i, field := range append(d.market(), d.tokenLayer()...) {
		field.address[0], field.address[19] = 0xc0, byte(i+1)
	}
	return d
}

// uniswapABI declares the events of Uniswap v4 that we decode, as its sources do.
const uniswapABI = `[
 {"type":"event","name":"Initialize","inputs":[{"name":"id","type":"bytes32","indexed":true},{"name":"currency0","type":"address","indexed":true},{"name":"currency1","type":"address","indexed":true},{"name":"fee","type":"uint24"},{"name":"tickSpacing","type":"int24"},{"name":"hooks","type":"address"},{"name":"sqrtPriceX96","type":"uint160"},{"name":"tick","type":"int24"}]},
 {"type":"event","name":"ModifyLiquidity","inputs":[{"name":"id","type":"bytes32","indexed":true},{"name":"sender","type":"address","indexed":true},{"name":"tickLower","type":"int24"},{"name":"tickUpper","type":"int24"},{"name":"liquidityDelta","type":"int256"},{"name":"salt","type":"bytes32"}]},
 {"type":"event","name":"Swap","inputs":[{"name":"id","type":"bytes32","indexed":true},{"name":"sender","type":"address","indexed":true},{"name":"amount0","type":"int128"},{"name":"amount1","type":"int128"},{"name":"sqrtPriceX96","type":"uint160"},{"name":"liquidity","type":"uint128"},{"name":"tick","type":"int24"},{"name":"fee","type":"uint24"}]},
 {"type":"event","name":"Transfer","inputs":[{"name":"from","type":"address","indexed":true},{"name":"to","type":"address","indexed":true},{"name":"id","type":"uint256","indexed":true}]}
]`

// claimed is an event of an ABI that the decoder must know, with a zero value of its Go type.
type claimed struct {
	emitter common.Address
	event   abi.Event
	value   Event
}

// everyEvent pairs each event of our ABIs, of Uniswap and of tokens with its Go type. The ABIs decide what there is.
func everyEvent(t testing.TB) []claimed {
	t.Helper()
	d := testDeployment()
	goTypes := map[string]Event{}
	for _, e := range []Event{
		&DealListed{}, &DealTermsUpdated{}, &DealFunded{}, &DealReclaimed{}, &DealClaimed{}, &DealCancelled{},
		&BidPlaced{}, &BidWithdrawn{}, &BidAccepted{}, &Credited{}, &Withdrawn{}, &FeeSet{},
		&AssetSet{}, &OpenRawChanged{}, &PoolSet{}, &UIMultiplierUpdated{}, &TokenPaused{}, &TokenUnpaused{},
		&EpochOpened{}, &EpochRatesSet{}, &EpochReserved{}, &EpochReturned{}, &LiquidityReleased{}, &EpochClosed{},
		&RewardReserved{}, &RewardReturned{}, &DripCreated{}, &DripCut{}, &DripClaimed{},
		&PositionStaked{}, &PositionCheckpointed{}, &PositionUnstaked{}, &EmissionsNotified{}, &CreatorFeesNotified{},
		&EmissionsClaimed{}, &CreatorFeeClaimed{}, &Burned{},
		&RewardsSet{}, &VaultPaused{}, &VaultUnpaused{}, &VaultSet{}, &SourceSet{}, &ControllerSet{},
		&FeesWithdrawn{}, &EmissionsOwed{}, &OwnershipTransferStarted{}, &OwnershipTransferred{},
		&PoolInitialized{}, &LiquidityModified{}, &Swapped{}, &PositionTransferred{},
	} {
		goTypes[e.Name()] = e
	}
	// Names that Solidity and Go do not share.
	renamed := map[string]string{
		"Initialize": "PoolInitialized", "ModifyLiquidity": "LiquidityModified", "Swap": "Swapped",
		"Transfer": "PositionTransferred", "Paused": "TokenPaused", "Unpaused": "TokenUnpaused",
	}
	uniswap, err := abi.JSON(strings.NewReader(uniswapABI))
	if err != nil {
		t.Fatal(err)
	}
	var all []claimed
	add := func(emitter common.Address, contract abi.ABI, skip ...string) {
		for _, event := range contract.Events {
			if slices.Contains(skip, event.Name) {
				continue
			}
			name := event.Name
			if other, ok := renamed[name]; ok {
				name = other
			}
			if emitter == d.DealVault {
				name = strings.Replace(name, "Token", "Vault", 1)
			}
			value, ok := goTypes[name]
			if !ok {
				t.Fatalf("event %s of the ABI has no Go type", event.Sig)
			}
			delete(goTypes, name)
			all = append(all, claimed{emitter, event, value})
		}
	}
	for name, emitter := range map[string]common.Address{
		"DealVault": d.DealVault, "AssetRegistry": d.AssetRegistry, "EpochController": d.EpochController,
		"RewardDistributor": d.RewardDistributor, "LiquidityStaking": d.LiquidityStaking, "Burner": d.Burner,
	} {
		if name == "DealVault" {
			add(emitter, mustABI(t, name))
		} else { // an owner, and what is told of it, all of them have
			add(emitter, mustABI(t, name), "OwnershipTransferred", "OwnershipTransferStarted")
		}
	}
	add(common.HexToAddress("0x5707c"), mustABI(t, "StockToken"), "Transfer", "Approval", "OwnershipTransferred", "OwnershipTransferStarted")
	pools, positions := uniswap, uniswap
	add(d.PoolManager, pools, "Transfer")
	add(d.PositionManager, positions, "Initialize", "ModifyLiquidity", "Swap")
	for name := range goTypes {
		t.Fatalf("Go type %s has no event in any ABI", name)
	}
	slices.SortFunc(all, func(a, b claimed) int { return strings.Compare(a.event.Sig, b.event.Sig) })
	return all
}

func mustABI(t testing.TB, name string) abi.ABI {
	t.Helper()
	contract, err := ABI(name)
	if err != nil {
		t.Fatal(err)
	}
	return contract
}

// fieldNames are the Go names of a type's fields that come from the log's arguments.
func fieldNames(c claimed) []string {
	var names []string
	for f := range reflect.TypeOf(c.value).Elem().Fields() {
		names = append(names, f.Name)
	}
	switch c.value.(type) {
	case *TokenPaused, *TokenUnpaused: // the argument is not kept
		return []string{""}
	}
	return names[len(names)-len(c.event.Inputs):] // the first may be the emitter
}

// TestEventTypes holds every Go type to its event: the same fields in the same order, found by Decode.
func TestEventTypes(t *testing.T) {
	irregular := map[string]string{"id": "PoolID"}
	for _, c := range everyEvent(t) {
		t.Run(c.event.Sig, func(t *testing.T) {
			names := fieldNames(c)
			if len(names) != len(c.event.Inputs) {
				t.Fatalf("%d fields for %d arguments", len(names), len(c.event.Inputs))
			}
			for i, input := range c.event.Inputs {
				want := strings.ToLower(input.Name)
				if c.event.Name == "Transfer" {
					irregular = map[string]string{"id": "TokenID"}
				}
				if other, ok := irregular[input.Name]; ok {
					want = strings.ToLower(other)
				}
				got := strings.ToLower(names[i])
				if got == "tokenname" && want == "name" {
					continue
				}
				if names[i] != "" && got != want {
					t.Errorf("argument %d is %s, the field is %s", i, input.Name, names[i])
				}
			}
			topics, data, _ := randomLog(t, c, rand.New(rand.NewPCG(1, 2)))
			got := NewDecoder(testDeployment()).Decode(c.emitter, topics, data)
			if reflect.TypeOf(got) != reflect.TypeOf(c.value) {
				t.Errorf("decoded as %T %+v", got, got)
			}
		})
	}
}

// randomLog packs random arguments with go-ethereum's own encoder, and says what the fields must then hold.
func randomLog(t testing.TB, c claimed, r *rand.Rand) (topics []common.Hash, data []byte, want []any) {
	t.Helper()
	topics = []common.Hash{c.event.ID}
	var packed []any
	for _, input := range c.event.Inputs {
		value, field := randomValue(t, input, r)
		want = append(want, field)
		if !input.Indexed {
			packed = append(packed, value)
			continue
		}
		word, err := abi.Arguments{{Type: input.Type}}.Pack(value)
		if err != nil {
			t.Fatal(err)
		}
		topics = append(topics, common.BytesToHash(word))
	}
	data, err := c.event.Inputs.NonIndexed().Pack(packed...)
	if err != nil {
		t.Fatal(err)
	}
	return topics, data, want
}

// enums are the number of values of the enumerations that ABIs only know as uint8.
var enums = map[string]uint8{
	"enum Kind": 2, "enum Lane": 4, "enum BalanceKind": 3, "enum CreditReason": 6, "enum DripSource": 2,
}

func isEnum(input abi.Argument) (uint8, bool) {
	for name, count := range enums {
		if strings.EqualFold(input.Name, strings.TrimPrefix(name, "enum ")) && input.Type.T == abi.UintTy && input.Type.Size == 8 {
			return count, true
		}
	}
	switch {
	case input.Type.T != abi.UintTy || input.Type.Size != 8:
		return 0, false
	case input.Name == "reason":
		return enums["enum CreditReason"], true
	case input.Name == "source":
		return enums["enum DripSource"], true
	}
	return 0, false
}

// randomValue is an argument as go-ethereum packs it and as the event's field shows it.
func randomValue(t testing.TB, input abi.Argument, r *rand.Rand) (value, field any) {
	t.Helper()
	random := make([]byte, 32)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	if r.IntN(4) == 0 { // the edges, too
		random = bytes.Repeat([]byte{[]byte{0, 0xff}[r.IntN(2)]}, 32)
	}
	typ := input.Type
	switch typ.T {
	case abi.AddressTy:
		a := common.BytesToAddress(random)
		return a, a
	case abi.FixedBytesTy:
		return [32]byte(random), common.Hash(random)
	case abi.BoolTy:
		b := random[0]&1 == 1
		return b, b
	case abi.StringTy:
		s := strings.Repeat("é", r.IntN(maxStringBytes/2+1))
		return s, s
	case abi.UintTy:
		if count, ok := isEnum(input); ok {
			return random[0] % count, uint64(random[0] % count)
		}
		n := new(big.Int).SetBytes(random[:typ.Size/8])
		return fitted(typ, n), numberField(typ, n)
	case abi.IntTy:
		n := new(big.Int).SetBytes(random[:typ.Size/8])
		if n.Bit(typ.Size-1) == 1 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(typ.Size)))
		}
		return fitted(typ, n), numberField(typ, n)
	default:
		t.Fatalf("no random %s", typ)
		return nil, nil
	}
}

// fitted is n as the Go type that go-ethereum wants for it.
func fitted(typ abi.Type, n *big.Int) any {
	goType := typ.GetType()
	if goType == reflect.TypeFor[*big.Int]() {
		return n
	}
	if typ.T == abi.IntTy {
		return reflect.ValueOf(n.Int64()).Convert(goType).Interface()
	}
	return reflect.ValueOf(n.Uint64()).Convert(goType).Interface()
}

// numberField is n as fields are compared: small ones as 64 bits, others as two's complement of 256.
func numberField(typ abi.Type, n *big.Int) any {
	switch {
	case typ.Size > 64:
		u, _ := uint256.FromBig(n)
		return *u
	case typ.T == abi.IntTy:
		return n.Int64()
	default:
		return n.Uint64()
	}
}

// checkFields compares an event with the arguments that were packed.
func checkFields(t *testing.T, c claimed, event Event, want []any) {
	t.Helper()
	value := reflect.ValueOf(event).Elem()
	for i, name := range fieldNames(c) {
		if name == "" {
			continue
		}
		field := value.FieldByName(name)
		got := field.Interface()
		switch {
		case field.CanUint():
			got = field.Uint()
		case field.CanInt():
			got = field.Int()
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Fatalf("%s.%s (-packed +decoded):\n%s", event.Name(), name, diff)
		}
	}
	if first := value.Field(0); len(fieldNames(c)) < value.NumField() || fieldNames(c)[0] == "" {
		if first.Interface() != c.emitter {
			t.Fatalf("%s.%s is %v, emitted by %s", event.Name(), value.Type().Field(0).Name, first, c.emitter)
		}
	}
}

// FuzzDecode packs random arguments of a random event with go-ethereum, decodes them, and then decodes them
// with the raw bytes laid over: what still claims to be an event must pack to the very bytes it came from.
func FuzzDecode(f *testing.F) {
	events := everyEvent(f)
	decoder := NewDecoder(testDeployment())
	for i := range events {
		f.Add(uint8(i), uint64(i), uint16(0), []byte(nil))
		f.Add(uint8(i), uint64(i+100), uint16(31), []byte{1})
		f.Add(uint8(i), uint64(i+200), uint16(64), bytes.Repeat([]byte{0xff}, 40))
	}
	f.Fuzz(func(t *testing.T, which uint8, seed uint64, at uint16, over []byte) {
		c := events[int(which)%len(events)]
		topics, data, want := randomLog(t, c, rand.New(rand.NewPCG(seed, 0)))
		event := decoder.Decode(c.emitter, topics, data)
		if event.Name() == "Unknown" {
			t.Fatalf("%s: %+v", c.event.Sig, event)
		}
		checkFields(t, c, event, want)

		spoiled := slices.Clone(data)
		if n := int(at); n <= len(spoiled) {
			spoiled = append(spoiled[:n], over...)
			spoiled = append(spoiled, data[min(len(spoiled), len(data)):]...)
		}
		event = decoder.Decode(c.emitter, topics, spoiled)
		if event.Name() == "Unknown" {
			return
		}
		values, err := c.event.Inputs.NonIndexed().Unpack(spoiled)
		if err != nil {
			t.Fatalf("%s decoded what go-ethereum does not: %v", c.event.Sig, err)
		}
		again, err := c.event.Inputs.NonIndexed().Pack(values...)
		if err != nil || !bytes.Equal(again, spoiled) {
			t.Fatalf("%s decoded data that no contract writes: %x (%v)", c.event.Sig, spoiled, err)
		}
	})
}

// FuzzDecodeAnything throws arbitrary logs at the decoder: an event always comes back, with an entity.
func FuzzDecodeAnything(f *testing.F) {
	d := testDeployment()
	events := everyEvent(f)
	decoder := NewDecoder(d)
	f.Add(d.DealVault[:], uint8(0), []byte(nil), []byte(nil))
	for i, c := range events {
		topics, data, _ := randomLog(f, c, rand.New(rand.NewPCG(uint64(i), 3)))
		f.Add(c.emitter[:], uint8(i), bytes.Join(hashBytes(topics[1:]), nil), data)
	}
	f.Fuzz(func(t *testing.T, address []byte, which uint8, rest, data []byte) {
		topics := []common.Hash{events[int(which)%len(events)].event.ID}
		for chunk := range slices.Chunk(rest, 32) {
			topics = append(topics, common.BytesToHash(chunk))
		}
		for _, topics := range [][]common.Hash{nil, topics} {
			event := decoder.Decode(common.BytesToAddress(address), topics, data)
			if event == nil || event.Name() == "" || len(event.Entity().Key()) == 0 {
				t.Fatalf("decoded as %#v", event)
			}
		}
	})
}

func hashBytes(hashes []common.Hash) [][]byte {
	b := make([][]byte, len(hashes))
	for i := range hashes {
		b[i] = hashes[i][:]
	}
	return b
}

// TestDecodeUnknown lists each way in which a log is not an event.
func TestDecodeUnknown(t *testing.T) {
	d := testDeployment()
	events := map[string]claimed{}
	for _, c := range everyEvent(t) {
		events[c.event.Name] = c
	}
	log := func(name string) types.Log {
		c := events[name]
		topics, data, _ := randomLog(t, c, rand.New(rand.NewPCG(9, 9)))
		return types.Log{Address: c.emitter, Topics: topics, Data: data}
	}
	word := func(data []byte, n int) []byte { return data[32*n : 32*n+32] }

	for _, test := range []struct {
		name, event string
		spoil       func(*types.Log)
		reason      string
	}{
		{"foreign address", "DealListed", func(l *types.Log) { l.Address[3]++ }, ReasonForeign},
		{"another contract of ours", "DealListed", func(l *types.Log) { l.Address = d.AssetRegistry }, ReasonSignature},
		{"a pause of the registry", "Paused", func(l *types.Log) { l.Address = d.AssetRegistry }, ReasonSignature},
		{"no topics", "DealListed", func(l *types.Log) { l.Topics = nil }, ReasonAnonymous},
		{"signature", "DealListed", func(l *types.Log) { l.Topics[0][0]++ }, ReasonSignature},
		{"a topic too few", "DealListed", func(l *types.Log) { l.Topics = l.Topics[:3] }, ReasonTopics},
		{"a topic too many", "Burned", func(l *types.Log) { l.Topics = append(l.Topics, common.Hash{}) }, ReasonTopics},
		{"address topic", "DealListed", func(l *types.Log) { l.Topics[2][11] = 1 }, ReasonData},
		{"uint32 topic", "EpochOpened", func(l *types.Log) { l.Topics[1][27] = 1 }, ReasonData},
		{"enum topic", "AssetSet", func(l *types.Log) { l.Topics[2][31] = 4 }, ReasonData},
		{"empty data", "DealListed", func(l *types.Log) { l.Data = nil }, ReasonData},
		{"a byte short", "DealListed", func(l *types.Log) { l.Data = l.Data[:len(l.Data)-1] }, ReasonData},
		{"a word long", "DealListed", func(l *types.Log) { l.Data = append(l.Data, make([]byte, 32)...) }, ReasonData},
		{"kind out of range", "DealListed", func(l *types.Log) { word(l.Data, 0)[31] = 2 }, ReasonData},
		{"lane padding", "DealListed", func(l *types.Log) { word(l.Data, 1)[0] = 1 }, ReasonData},
		{"uint128 padding", "DealListed", func(l *types.Log) { word(l.Data, 3)[15] = 1 }, ReasonData},
		{"uint32 padding", "DealListed", func(l *types.Log) { word(l.Data, 5)[27] = 1 }, ReasonData},
		{"uint40 padding", "DealListed", func(l *types.Log) { word(l.Data, 6)[26] = 1 }, ReasonData},
		{"uint16 padding", "DealListed", func(l *types.Log) { word(l.Data, 8)[29] = 1 }, ReasonData},
		{"address padding", "FeeSet", func(l *types.Log) { word(l.Data, 1)[11] = 1 }, ReasonData},
		{"bool of 2", "PoolSet", func(l *types.Log) { word(l.Data, 0)[31] = 2 }, ReasonData},
		{"reason out of range", "Credited", func(l *types.Log) { word(l.Data, 2)[31] = 6 }, ReasonData},
		{"int24 sign", "ModifyLiquidity", func(l *types.Log) { word(l.Data, 0)[28] ^= 0x80 }, ReasonData},
		{"int128 sign", "Swap", func(l *types.Log) { word(l.Data, 0)[15] ^= 1 }, ReasonData},
		{"uint160 padding", "Swap", func(l *types.Log) { word(l.Data, 2)[11] = 1 }, ReasonData},
		{"uint24 padding", "Swap", func(l *types.Log) { word(l.Data, 5)[28] = 1 }, ReasonData},
		{"string offset", "AssetSet", func(l *types.Log) { word(l.Data, 6)[31] += 32 }, ReasonData},
		{"string offset far off", "AssetSet", func(l *types.Log) { word(l.Data, 7)[0] = 0xff }, ReasonData},
		{"string too long", "AssetSet", func(l *types.Log) { word(l.Data, 8)[30] = 0xff }, ReasonData},
		{"string length huge", "AssetSet", func(l *types.Log) { word(l.Data, 8)[0] = 0xff }, ReasonData},
		{"string padding", "AssetSet", func(l *types.Log) { l.Data[len(l.Data)-1] = 1 }, ReasonData},
		{"strings cut off", "AssetSet", func(l *types.Log) { l.Data = l.Data[:8*32] }, ReasonData},
		{"second string cut off", "AssetSet", func(l *types.Log) { l.Data = l.Data[:10*32] }, ReasonData},
		{"data after the strings", "AssetSet", func(l *types.Log) { l.Data = append(l.Data, make([]byte, 32)...) }, ReasonData},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := log(test.event)
			if test.event == "AssetSet" {
				l.Data = assetSetData(t, events["AssetSet"])
			}
			if e := NewDecoder(d).Decode(l.Address, l.Topics, l.Data); e.Name() == "Unknown" {
				t.Fatalf("unspoiled: %+v", e)
			}
			test.spoil(&l)
			want := Event(&Unknown{Address: l.Address, Reason: test.reason})
			got := NewDecoder(d).Decode(l.Address, l.Topics, l.Data)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if key := got.Entity().Key(); !strings.HasPrefix(string(key), "unknown:") {
				t.Errorf("entity %s", key)
			}
		})
	}
}

// TestNameNotUTF8: a token names itself as it likes; what the registry says of it is known all the same.
func TestNameNotUTF8(t *testing.T) {
	d := testDeployment()
	registry, err := ABI("AssetRegistry")
	if err != nil {
		t.Fatal(err)
	}
	event := registry.Events["AssetSet"]
	data, err := event.Inputs.NonIndexed().Pack(uint8(0), true, uint8(18), big.NewInt(1), big.NewInt(2), big.NewInt(3), "A\xffL", "\xc3(\xff\xfe)")
	if err != nil {
		t.Fatal(err)
	}
	topics := []common.Hash{event.ID, common.BigToHash(big.NewInt(7)), {}}
	got, ok := NewDecoder(d).Decode(d.AssetRegistry, topics, data).(*AssetSet)
	if !ok || got.Symbol != "A?L" || got.TokenName != "?(?)" || got.MaxOpenRaw != *uint256.NewInt(3) {
		t.Errorf("decoded %+v", got)
	}
}

// assetSetData has two strings that each fill part of one word.
func assetSetData(t *testing.T, c claimed) []byte {
	t.Helper()
	one := big.NewInt(1)
	data, err := c.event.Inputs.NonIndexed().Pack(uint8(0), true, uint8(18), one, one, one, "AAPL", "Apple")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestEntities holds each family to the key that its records carry.
func TestEntities(t *testing.T) {
	id := *uint256.NewInt(42)
	account := common.HexToAddress("0xABcdEFABcdEFabcdEfAbCdefabcdeFABcDEFabCD")
	poolID := common.HexToHash("0x0a")
	const poolKey = "pool:0x000000000000000000000000000000000000000000000000000000000000000a"
	const accountHex = "0xabcdefabcdefabcdefabcdefabcdefabcdefabcd"
	for _, test := range []struct {
		event Event
		key   string
	}{
		{&DealListed{DealID: id}, "deal:42"},
		{&BidAccepted{DealID: id, BidID: *uint256.NewInt(7)}, "deal:42"},
		{&RewardReserved{DealID: id, N: 3}, "deal:42"},
		{&Credited{Account: account, DealID: id}, "account:" + accountHex},
		{&DripCut{Account: account}, "account:" + accountHex},
		{&AssetSet{Token: account}, "token:" + accountHex},
		{&TokenPaused{Token: account}, "token:" + accountHex},
		{&PoolSet{PoolID: poolID}, poolKey},
		{&Swapped{PoolID: poolID, Sender: account}, poolKey},
		{&PositionStaked{PoolID: poolID, TokenID: id}, poolKey},
		{&PositionTransferred{TokenID: id}, "position:42"},
		{&EpochOpened{N: 3}, "epoch:3"},
		{&Burned{Caller: account}, "burner:" + accountHex},
		{&FeeSet{Vault: account}, "contract:" + accountHex},
		{&Unknown{Address: account}, "unknown:" + accountHex},
		{&DealListed{DealID: *new(uint256.Int).SetAllOne()}, "deal:" + new(uint256.Int).SetAllOne().Dec()},
	} {
		if got := string(test.event.Entity().Key()); got != test.key {
			t.Errorf("%s: key %s, want %s", test.event.Name(), got, test.key)
		}
	}
}

// TestAddresses: with no token layer its contracts are not asked for, and their logs are foreign.
func TestAddresses(t *testing.T) {
	d := testDeployment()
	full := NewDecoder(d)
	if got := full.Addresses(); len(got) != 8 || slices.Contains(got, d.USDG) || slices.Contains(got, d.STKN) {
		t.Errorf("addresses of the full deployment: %v", got)
	}
	bare := d
	for _, field := range bare.tokenLayer() {
		*field.address = common.Address{}
	}
	bare.PoolID = common.Hash{}
	want := []common.Address{d.DealVault, d.AssetRegistry, d.PoolManager, d.PositionManager}
	if diff := cmp.Diff(want, NewDecoder(bare).Addresses()); diff != "" {
		t.Error(diff)
	}
	for _, c := range everyEvent(t) {
		if c.event.Name != "Burned" {
			continue
		}
		topics, data, _ := randomLog(t, c, rand.New(rand.NewPCG(1, 1)))
		if got := NewDecoder(bare).Decode(c.emitter, topics, data); got.Name() != "Unknown" {
			t.Errorf("a burn without a token layer is %+v", got)
		}
	}
	for i, topic := range TokenTopics() {
		if want := mustABI(t, "StockToken").Events[[]string{"UIMultiplierUpdated", "Paused", "Unpaused"}[i]].ID; topic != want {
			t.Errorf("token topic %d is %s, want %s", i, topic, want)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	decoder := NewDecoder(testDeployment())
	logs := map[string]types.Log{}
	var mixed []types.Log
	for _, c := range everyEvent(b) {
		topics, data, _ := randomLog(b, c, rand.New(rand.NewPCG(4, 4)))
		l := types.Log{Address: c.emitter, Topics: topics, Data: data}
		logs[c.event.Name] = l
		mixed = append(mixed, l)
	}
	run := func(logs []types.Log) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l := &logs[i%len(logs)]
				if event := decoder.Decode(l.Address, l.Topics, l.Data); event.Name() == "Unknown" {
					b.Fatalf("%+v", event)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "logs/s")
		}
	}
	b.Run("every event", run(mixed))
	for _, name := range []string{"DealListed", "Credited", "Swap", "AssetSet"} {
		b.Run(fmt.Sprint(name), run([]types.Log{logs[name]}))
	}
}

// Any contract may emit a log with the topic of Transfer: what is none of an ERC-20's says so, and of which token.
func TestDecodeTransfer(t *testing.T) {
	token, from, to := common.Address{1}, common.Address{2}, common.Address{3}
	word := func(a common.Address) common.Hash { return common.BytesToHash(a[:]) }
	amount := uint256.NewInt(7).Bytes32()
	whole := []common.Hash{TransferTopic(), word(from), word(to)}
	dirty := word(to)
	dirty[0] = 1
	decoder := NewDecoder(testDeployment())
	want := &TokenTransferred{Token: token, From: from, To: to, Amount: *uint256.NewInt(7)}
	if diff := cmp.Diff(Event(want), decoder.Decode(token, whole, amount[:])); diff != "" {
		t.Error(diff)
	}
	for name, l := range map[string]struct {
		topics []common.Hash
		data   []byte
	}{
		"nothing indexed":      {whole[:1], append(append(whole[1].Bytes(), whole[2][:]...), amount[:]...)},
		"a token ID":           {append(slices.Clone(whole), amount), nil},
		"no data":              {whole, nil},
		"a byte short":         {whole, amount[1:]},
		"a word long":          {whole, make([]byte, 64)},
		"an address too large": {[]common.Hash{TransferTopic(), word(from), dirty}, amount[:]},
	} {
		if diff := cmp.Diff(Event(&TransferMalformed{Token: token}), decoder.Decode(token, l.topics, l.data)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
