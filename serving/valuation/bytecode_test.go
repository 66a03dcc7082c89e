package valuation

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/serving/chain"
)

// TestCodeThatRunsOtherCode: a token is a proxy if its code may run other code, in whatever way. The same bytes where the EVM
// does not run them make none.
func TestCodeThatRunsOtherCode(t *testing.T) {
	const other = "1111111111111111111111111111111111111111"
	for name, test := range map[string]struct {
		code string
		want bool
	}{
		"EIP-1167":                 {"363d3d373d3d3d363d73" + other + "5af43d82803e903d91602b57fd5bf3", true},
		"minimal proxy with PUSH0": {"5f5f365f5f37365f73" + other + "5af43d5f5f3e6029573d5ffd5b3d5ff3", true},
		"0age":                     {"3d3d3d3d363d3d37363d73" + other + "5af43d3d93803e602a57fd5bf3", true},
		"CALLCODE":                 {"5f5f5f5f5f73" + other + "5af200", true},
		"EIP-7702":                 {"ef0100" + other, true},
		"beacon": {"365f5f37635c60da1b5f5260205f6004601c7fa3f0ad74e5423aebfd80d3ef4346578335a9a72aeaee59ff6cb3582b35133d50" +
			"545afa505f5f365f5f515af4", true},
		"in what looks like metadata":  {"60145600fea2646970667358221220" + "0000000000" + "5b5f5f5f5f73" + other + "5af464736f6c634300081a0033", true},
		"pushed":                       {"63f4f4f4f4505f5ff3", false},
		"metadata":                     {"5f5ff3fea2646970667358221220f4f2" + other + "f4f2f4f2f4f2f4f2f4f264736f6c634300081a0033", false},
		"the end of a push is missing": {"5f5ff35b7ff4", false},
	} {
		f := factsOf([]chain.Result{{Data: common.LeftPadBytes([]byte{1}, 32)}, {Data: common.FromHex(test.code)}})
		if *f.checks.Proxy != test.want {
			t.Errorf("%s: proxy %t", name, *f.checks.Proxy)
		}
	}
}
