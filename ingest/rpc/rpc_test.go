package rpc

import (
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// TestOneEndpointTwice: an endpoint that is given twice, in any spelling, is refused: it would count as two that
// agree. The error names the flag, and no URL, which may have a key.
func TestOneEndpointTwice(t *testing.T) {
	for _, test := range []struct {
		urls  []string
		twice string
	}{
		{[]string{"https://node.example/key", "https://node.example/key"}, "endpoints 0 and 1"},
		{[]string{"https://node.example/key", "https://NODE.example/key"}, "endpoints 0 and 1"},
		{[]string{"https://node.example/key", "http://node.example/key", "HTTPS://node.example:443/key/"}, "endpoints 0 and 2"},
		{[]string{"http://other.example", "http://node.example", "http://node.example.:80/"}, "endpoints 1 and 2"},
		{[]string{"WSS://node.example/key", "wss://node.example:443/key"}, "endpoints 0 and 1"},
		{[]string{"http://[2001:DB8::1]:8545", "http://[2001:db8::1]:8545/"}, "endpoints 0 and 1"},
		{[]string{"https://node.example/key", "https://node.example/other", "https://node.example/Key", "https://node.example/key?chain=7"}, ""},
		{[]string{"http://node.example:8545", "http://node.example:8547", "http://node.example", "https://node.example", "http://other.example", "ws://node.example"}, ""},
		{[]string{"https://a:b@node.example", "https://c:d@node.example"}, ""},
	} {
		c := DefaultConfig()
		c.ChainID, c.Addresses = 1, []common.Address{{1}}
		for _, url := range test.urls {
			c.Endpoints = append(c.Endpoints, Endpoint{URL: url})
		}
		err := c.Validate()
		if (err == nil) != (test.twice == "") {
			t.Errorf("%v: %v", test.urls, err)
		} else if err != nil && (!strings.Contains(err.Error(), "rpc: "+test.twice+" are the same,") || strings.Contains(err.Error(), "key")) {
			t.Errorf("%v: %v", test.urls, err)
		}
	}
}
