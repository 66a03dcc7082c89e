package httpapi

// perKey has a value for each of many keys, made when it is first asked for.
//
// Invariant: at most maxClients keys are known. At the limit those whose value is idle are forgotten, which does not
// affect them; if that is not enough, new keys share one value.
type perKey[K comparable, V any] struct {
	fresh func() V
	idle  func(V) bool // it is as a fresh one

	known  map[K]V
	others V
}

const maxClients = 1 << 16

func newPerKey[K comparable, V any](fresh func() V, idle func(V) bool) perKey[K, V] {
	return perKey[K, V]{fresh: fresh, idle: idle, known: map[K]V{}, others: fresh()}
}

func (m *perKey[K, V]) of(key K) V {
	if v, ok := m.known[key]; ok {
		return v
	}
	if len(m.known) >= maxClients {
		for k, v := range m.known {
			if m.idle(v) {
				delete(m.known, k)
			}
		}
		if len(m.known) >= maxClients {
			return m.others
		}
	}
	v := m.fresh()
	m.known[key] = v
	return v
}
