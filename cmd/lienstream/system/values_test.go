package system

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
)

// The spec's encodings, written a second time for the judge: addresses in lower case, amounts as decimal
// strings, timestamps as JSON integers.

func lower(a common.Address) string { return strings.ToLower(a.Hex()) }

func number(n *big.Int) json.Number { return json.Number(n.String()) }

func dec(v any) string { return v.(*big.Int).String() }

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func hash(s string) common.Hash { return common.HexToHash(s) }

func lowerHash(h common.Hash) string { return strings.ToLower(h.Hex()) }

func integer(t *testing.T, v any) uint64 {
	t.Helper()
	n, err := v.(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	return uint64(n)
}

// text is a number or a string, as a string.
func text(v any) string { return fmt.Sprint(v) }

func objects(list any) []object {
	items, _ := list.([]any)
	all := make([]object, len(items))
	for i := range items {
		all[i] = items[i].(object)
	}
	return all
}

func decodeObject(raw []byte) (object, error) {
	var o object
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&o)
	return o, err
}

// decimal18 is a number of 18 digits after the point as a decimal without trailing zeros.
func decimal18(n string) string {
	n = strings.Repeat("0", max(0, 19-len(n))) + n
	whole, part := n[:len(n)-18], strings.TrimRight(n[len(n)-18:], "0")
	if part == "" {
		return whole
	}
	return whole + "." + part
}

func parseABI(t *testing.T, text string) abi.ABI {
	t.Helper()
	a, err := abi.JSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return a
}
