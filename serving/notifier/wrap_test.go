package notifier_test

import (
	"bytes"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
)

var magic6492 = bytes.Repeat([]byte{0x64, 0x92}, 16)

// wrap6492 is a signature of a wallet that a call of a factory will deploy.
func wrap6492(t *testing.T, factory common.Address, call, signature []byte) []byte {
	t.Helper()
	var arguments abi.Arguments
	for _, name := range []string{"address", "bytes", "bytes"} {
		kind, err := abi.NewType(name, "", nil)
		check(t, err)
		arguments = append(arguments, abi.Argument{Type: kind})
	}
	packed, err := arguments.Pack(factory, call, signature)
	check(t, err)
	return append(packed, magic6492...)
}
