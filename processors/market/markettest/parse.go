package markettest

import (
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
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

// ABI is the ABI of a contract that a script may name.
func ABI(name string) abi.ABI {
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

// parse makes the record that a line of a script means.
func parse(t *testing.T, line string) topics.Raw {
	fields := strings.Fields(line)
	values := map[string]string{}
	for _, f := range fields[1:] {
		name, value, ok := strings.Cut(f, "=")
		if !ok {
			t.Fatalf("%s: %q is no name=value", line, f)
		}
		values[name] = value
	}
	switch fields[0] {
	case "probe":
		return parseProbe(values)
	case "ledger":
		return parseLedger(t, values)
	case "raw":
		return &topics.Log{
			Address: common.HexToAddress(values["address"]), Topics: []common.Hash{crypto.Keccak256Hash([]byte(values["signature"]))},
			Data: common.FromHex(values["data"]),
		}
	}
	emitter, name, ok := strings.Cut(fields[0], ".")
	if !ok {
		emitter, name = emitters[0].name, fields[0]
	}
	for _, e := range emitters {
		if e.name != emitter {
			continue
		}
		contract := ABI(e.abi)
		event, ok := contract.Events[name]
		if !ok {
			t.Fatalf("%s: %s has no event %q", line, e.abi, name)
		}
		log := &topics.Log{Address: e.address, Topics: []common.Hash{event.ID}}
		var data []any
		for _, in := range event.Inputs {
			value := parseValue(t, in.Type, values[in.Name])
			delete(values, in.Name)
			if !in.Indexed {
				data = append(data, value)
				continue
			}
			packed, err := abi.Arguments{{Type: in.Type}}.Pack(value)
			if err != nil {
				t.Fatal(err)
			}
			log.Topics = append(log.Topics, common.Hash(packed))
		}
		if len(values) > 0 {
			t.Fatalf("%s: no such parameters: %v", line, values)
		}
		var err error
		if log.Data, err = event.Inputs.NonIndexed().Pack(data...); err != nil {
			t.Fatal(err)
		}
		return log
	}
	t.Fatalf("%s: no emitter %q", line, emitter)
	return nil
}

func parseValue(t *testing.T, typ abi.Type, text string) any {
	switch typ.T {
	case abi.BoolTy:
		return text == "true"
	case abi.StringTy:
		return text
	}
	number := new(big.Int)
	if text != "" {
		if _, ok := number.SetString(text, 0); !ok {
			t.Fatalf("%q is no number", text)
		}
	}
	switch typ.T {
	case abi.AddressTy:
		return common.BigToAddress(number)
	case abi.FixedBytesTy:
		return common.BigToHash(number)
	default:
		v := reflect.New(typ.GetType()).Elem()
		if v.CanUint() {
			v.SetUint(number.Uint64())
			return v.Interface()
		}
		if v.CanInt() {
			v.SetInt(number.Int64())
			return v.Interface()
		}
		return number
	}
}

// parseLedger reads a ledger whose shares are "account:amount", separated by commas. The part is "0/2" and so on.
func parseLedger(t *testing.T, values map[string]string) *topics.Ledger {
	l := &topics.Ledger{Token: common.HexToAddress(values["token"]), First: common.HexToHash(values["first"]), Parts: 1, Fault: values["fault"]}
	if values["part"] != "" {
		if _, err := fmt.Sscanf(values["part"], "%d/%d", &l.Part, &l.Parts); err != nil {
			t.Fatal(err)
		}
	}
	for _, share := range strings.FieldsFunc(values["shares"], func(r rune) bool { return r == ',' }) {
		account, amount, ok := strings.Cut(share, ":")
		if !ok {
			t.Fatalf("%q is no account:amount", share)
		}
		l.Shares = append(l.Shares, topics.Share{Account: common.HexToAddress(account), Amount: *uint256.MustFromDecimal(amount)})
	}
	return l
}

func parseProbe(values map[string]string) *topics.Probe {
	p := &topics.Probe{Token: common.HexToAddress(values["token"])}
	number := func(name string) *uint256.Int {
		if values[name] == "" {
			return nil
		}
		return uint256.MustFromDecimal(values[name])
	}
	p.UIMultiplier, p.NewUIMultiplier = number("uiMultiplier"), number("newUIMultiplier")
	if n := number("effectiveAt"); n != nil {
		at := n.Uint64()
		p.EffectiveAt = &at
	}
	if values["paused"] != "" {
		paused := values["paused"] == "true"
		p.Paused = &paused
	}
	return p
}
