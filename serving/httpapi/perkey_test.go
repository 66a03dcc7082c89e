package httpapi

import "testing"

// At the limit what is idle is forgotten, and only that; where nothing is, new keys share one value.
func TestPerKey(t *testing.T) {
	type count struct{ n int }
	m := newPerKey[int](func() *count { return new(count) }, func(c *count) bool { return c.n == 0 })
	for key := range maxClients {
		m.of(key).n = key % 2
	}
	m.of(maxClients).n = 1
	if len(m.known) != maxClients/2+1 {
		t.Errorf("%d keys are known, want the half that is in use, and the new one", len(m.known))
	}
	for key := range maxClients {
		if key%2 == 1 && m.of(key).n != 1 {
			t.Fatalf("%d was in use, and was forgotten", key)
		}
		m.of(key).n = 1
	}
	if len(m.known) > maxClients {
		t.Errorf("%d keys are known", len(m.known))
	}
	if a, b := m.of(-1), m.of(-2); a != b {
		t.Error("beyond the limit new keys do not share a value")
	}
	if len(m.known) > maxClients {
		t.Errorf("%d keys are known", len(m.known))
	}
}
