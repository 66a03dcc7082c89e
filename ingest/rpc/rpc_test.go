package rpc

import (
	"slices"
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
		{[]string{"ws://node.example", "http://node.example", "WS://node.example:80"}, "endpoints 0 and 1"},
		{[]string{"ws://node.example", "http://node.example:8545", "ws://node.example", "http://node.example"}, "endpoints 0 and 2"},
		{[]string{"https://a:b@node.example", "https://c:d@node.example"}, ""},
	} {
		c := DefaultConfig()
		c.ChainID, c.Addresses = 1, []common.Address{{1}}
		c.Endpoints = Endpoints(test.urls)
		err := c.Validate()
		if (err == nil) != (test.twice == "") {
			t.Errorf("%v: %v", test.urls, err)
		} else if err != nil && (!strings.Contains(err.Error(), "rpc: "+test.twice+" are the same node,") || strings.Contains(err.Error(), "key")) {
			t.Errorf("%v: %v", test.urls, err)
		}
	}
}

// TestEndpoints: HTTP and WebSocket of one node are one endpoint, in whatever order and spelling. Where they are given
// as two, that is refused.
func TestEndpoints(t *testing.T) {
	for _, test := range []struct {
		urls []string
		want []Endpoint
	}{
		{[]string{"http://a"}, []Endpoint{{URL: "http://a"}}},
		{[]string{"ws://a"}, []Endpoint{{URL: "ws://a"}}},
		{[]string{"ws://a:8545", "http://a:8545/"}, []Endpoint{{URL: "http://a:8545/", WS: "ws://a:8545"}}},
		{[]string{"https://A/v2/key", "wss://a.:443/v2/key"}, []Endpoint{{URL: "https://A/v2/key", WS: "wss://a.:443/v2/key"}}},
		{[]string{"wss://a/ws/v3/key", "https://a/v3/key"}, []Endpoint{{URL: "https://a/v3/key", WS: "wss://a/ws/v3/key"}}},
		{[]string{"wss://b/key", "https://c/key", "https://b/key"}, []Endpoint{{URL: "https://b/key", WS: "wss://b/key"}, {URL: "https://c/key"}}},
		{[]string{"https://a/key", "wss://a/Key", "wss://a/key?chain=7", "wss://u@a/key"}, []Endpoint{{URL: "https://a/key"}, {URL: "wss://a/Key"}, {URL: "wss://a/key?chain=7"}, {URL: "wss://u@a/key"}}},
		{[]string{"http://a:8545", "ws://a:8546"}, []Endpoint{{URL: "http://a:8545", WS: "ws://a:8546"}}},
		{[]string{"http://a:8545", "http://a:8547", "ws://a:8546", "ws://a:8548"}, []Endpoint{{URL: "http://a:8545", WS: "ws://a:8546"}, {URL: "http://a:8547", WS: "ws://a:8548"}}},
		{[]string{"ws://a:8546", "http://a:8545", "http://a:8546"}, []Endpoint{{URL: "http://a:8546", WS: "ws://a:8546"}, {URL: "http://a:8545"}}},
		{[]string{"http://a:8545", "ws://b:8546"}, []Endpoint{{URL: "http://a:8545"}, {URL: "ws://b:8546"}}},
		{[]string{"ws://a", "http://a", "http://a"}, []Endpoint{{URL: "http://a", WS: "ws://a"}, {URL: "http://a"}}}, // which is refused
		{[]string{"::", "::"}, []Endpoint{{URL: "::"}, {URL: "::"}}},
	} {
		if got := Endpoints(test.urls); !slices.Equal(got, test.want) {
			t.Errorf("%v: %v, want %v", test.urls, got, test.want)
		}
	}
	for _, two := range [][]Endpoint{
		{{URL: "ws://a"}, {URL: "http://a"}},
		{{URL: "https://a/key"}, {URL: "wss://A/ws/key"}},
		{{URL: "http://a", WS: "ws://a"}, {URL: "ws://a"}},
	} {
		c := DefaultConfig()
		c.ChainID, c.Addresses, c.Endpoints = 1, []common.Address{{1}}, two
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "endpoints 0 and 1 are the same") {
			t.Errorf("%v: %v", two, err)
		}
	}
}
