package market

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lienstream/lienstream/topics"
)

type metrics struct {
	events       map[string]prometheus.Counter // by family of evt topics
	none, probes prometheus.Counter
	unknown      *prometheus.CounterVec // by reason
	violation    *prometheus.CounterVec // by event and invariant
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	events := f.NewCounterVec(prometheus.CounterOpts{
		Name: "lienstream_processors_events_total",
		Help: "Events applied, by family; none: events without an evt topic.",
	}, []string{"family"})
	m := &metrics{
		events: map[string]prometheus.Counter{},
		none:   events.WithLabelValues("none"),
		probes: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_processors_probes_total",
			Help: "Token probes applied.",
		}),
		unknown: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_processors_unknown_logs_total",
			Help: "Logs that match no event, by reason.",
		}, []string{"reason"}),
		violation: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_processors_broken_invariants_total",
			Help: "Events that contradict the state and were skipped. Investigate anything but 0.",
		}, []string{"event", "invariant"}),
	}
	for _, family := range topics.EventFamilies() {
		m.events[family] = events.WithLabelValues(family)
	}
	return m
}

// event counts an event: the counters are made before, for a lookup by label would be on the hot path.
func (m *metrics) event(family string) prometheus.Counter {
	if c, ok := m.events[family]; ok {
		return c
	}
	return m.none
}
