package market

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lienstream/lienstream/topics"
)

type metrics struct {
	deals, balances, assets  prometheus.Counter
	liquidity, epochs, burns prometheus.Counter
	none, probes             prometheus.Counter
	unknown                  *prometheus.CounterVec // by reason
	violation                *prometheus.CounterVec // by event and invariant
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	events := f.NewCounterVec(prometheus.CounterOpts{
		Name: "lienstream_processors_events_total",
		Help: "Events applied, by family; none: events that no evt topic takes.",
	}, []string{"family"})
	return &metrics{
		deals:     events.WithLabelValues(topics.FamilyDeals),
		balances:  events.WithLabelValues(topics.FamilyBalances),
		assets:    events.WithLabelValues(topics.FamilyAssets),
		liquidity: events.WithLabelValues(topics.FamilyLiquidity),
		epochs:    events.WithLabelValues(topics.FamilyEpochs),
		burns:     events.WithLabelValues(topics.FamilyBurns),
		none:      events.WithLabelValues("none"),
		probes: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_processors_probes_total",
			Help: "Answers of tokens taken over.",
		}),
		unknown: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_processors_unknown_logs_total",
			Help: "Logs that no event claims, by reason.",
		}, []string{"reason"}),
		violation: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_processors_broken_invariants_total",
			Help: "Events that contradict the state, passed over. Anything but 0 asks for a look.",
		}, []string{"event", "invariant"}),
	}
}

// family is resolved at construction: a lookup by label would be on the hot path.
func (m *metrics) family(name string) prometheus.Counter {
	switch name {
	case topics.FamilyDeals:
		return m.deals
	case topics.FamilyBalances:
		return m.balances
	case topics.FamilyAssets:
		return m.assets
	case topics.FamilyLiquidity:
		return m.liquidity
	case topics.FamilyEpochs:
		return m.epochs
	case topics.FamilyBurns:
		return m.burns
	default:
		return m.none
	}
}
