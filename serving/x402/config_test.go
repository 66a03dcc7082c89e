package x402

import (
	"math/big"
	"strings"
	"testing"
	"time"
)

// A configuration that cannot work is an error that names each of its faults, and not the secrets in it.
func TestConfigs(t *testing.T) {
	t.Parallel()
	terms := newTerms(t, requirement())
	for want, alter := range map[string]func(*RelayerConfig){
		"":                   func(*RelayerConfig) {},
		"MaxFeeGas: missing": func(c *RelayerConfig) { c.MaxFeeGas = nil },
		"MaxFeeGas: 0 is":    func(c *RelayerConfig) { c.MaxFeeGas = new(big.Int) },
		"MaxFeeGas: -1 is":   func(c *RelayerConfig) { c.MaxFeeGas = big.NewInt(-1) },
		"BumpAfter: -1s is":  func(c *RelayerConfig) { c.BumpAfter = -time.Second },
		"Timeout: 0s is":     func(c *RelayerConfig) { c.Timeout = 0 },
		"Now: missing":       func(c *RelayerConfig) { c.Now = nil },
	} {
		cfg := DefaultRelayerConfig()
		alter(&cfg)
		if err := cfg.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "relayer: "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	several := DefaultRelayerConfig()
	several.BumpAfter, several.Timeout = 0, 0
	if err := several.Validate(); err == nil || !strings.Contains(err.Error(), "BumpAfter") || !strings.Contains(err.Error(), "Timeout") {
		t.Errorf("not all at once: %v", err)
	}
	if r, err := NewRelayer(RelayerConfig{}, terms, nil, nil); err == nil {
		t.Errorf("%+v", r)
	}
	for want, alter := range map[string]func(*FacilitatorConfig){
		"":                                  func(*FacilitatorConfig) {},
		"URL: ":                             func(c *FacilitatorConfig) { c.URL = "pay.example/secret" },
		"URL: not":                          func(c *FacilitatorConfig) { c.URL = "https://pay.example/secret\x7f" },
		"URL: not an":                       func(c *FacilitatorConfig) { c.URL = "https://:443/secret" },
		"URL: it has a":                     func(c *FacilitatorConfig) { c.URL = "https://pay.example/v2?apikey=secret" },
		"URL: it has a query or a fragment": func(c *FacilitatorConfig) { c.URL = "https://pay.example/v2#secret" },
		"Timeout: -1s":                      func(c *FacilitatorConfig) { c.Timeout = -time.Second },
		"Authorization:":                    func(c *FacilitatorConfig) { c.Authorization = "Bearer\nsecret" },
	} {
		cfg := DefaultFacilitatorConfig()
		cfg.URL = "https://pay.example"
		alter(&cfg)
		if _, err := NewFacilitator(cfg, terms); (err == nil) != (want == "") ||
			err != nil && (!strings.Contains(err.Error(), "facilitator: "+want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
