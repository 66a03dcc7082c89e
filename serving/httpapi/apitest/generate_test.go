package apitest

import "testing"

// An integer without a highest is right however large it is, and wrong in any other spelling.
func TestIntegersWithoutABound(t *testing.T) {
	schema := map[string]any{"type": "integer", "minimum": 0}
	for text, wrong := range map[string]bool{
		"0": false, "7": false, "9223372036854775808": false, "18446744073709551616": false,
		"-1": true, "01": true, "+1": true, "1.0": true, "1e3": true, "": true, "x": true,
	} {
		if got := new(Generator).refuses(schema, "", text); got != wrong {
			t.Errorf("%q: wrong is %t, want %t", text, got, wrong)
		}
	}
}
