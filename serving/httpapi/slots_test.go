package httpapi

import "testing"

func TestSlots(t *testing.T) {
	s := NewSlots[string](2, 3)
	for i, want := range []struct {
		key  string
		free bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", false}, {"c", false}} {
		if got := s.Take(want.key); got != want.free {
			t.Errorf("%d: a slot of %s: %v", i, want.key, got)
		}
	}
	s.Release("a")
	if !s.Take("c") || s.Take("a") {
		t.Error("a slot that was given back is not whoever's comes first")
	}
	for _, key := range []string{"a", "b", "c"} {
		s.Release(key)
	}
	if len(s.used) != 0 {
		t.Errorf("%v is kept", s.used)
	}
}
