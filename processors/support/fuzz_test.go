package support

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// FuzzParseRoster: every name on the roster fits.
func FuzzParseRoster(f *testing.F) {
	f.Add("anna " + common.Address{1}.Hex() + "\n\nben " + common.Address{2}.Hex())
	f.Fuzz(func(t *testing.T, text string) {
		staff, err := ParseRoster(text)
		for key, name := range staff {
			if err != nil || name == "" || len(name) > maxNameBytes {
				t.Errorf("%q: %s is %q, %v", text, key, name, err)
			}
		}
	})
}
