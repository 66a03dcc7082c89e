package valuation

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	states   *prometheus.CounterVec
	seconds  prometheus.Histogram
	refusals *prometheus.CounterVec
	stateAge prometheus.Gauge
	fees     prometheus.Counter
	requests *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		states: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_valuation_states_total", Help: "Blocks whose state was read, by outcome.",
		}, []string{"outcome"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name: "lienstream_valuation_state_seconds", Help: "Time to read the state of a block, reads of the chain included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}),
		refusals: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_valuation_refusals_total", Help: "Prices that were refused, by reason.",
		}, []string{"reason"}),
		stateAge: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_valuation_state_age_seconds", Help: "Age of the state that responses are computed from.",
		}),
		fees: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_valuation_fee_reads_total", Help: "Reads of the chain that a request waits for: position fees and facts.",
		}),
		requests: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_valuation_chain_requests",
			Help:    "Requests to nodes of the chain per answer, by route; a batch is one. Answers from the cache do not count.",
			Buckets: []float64{0, 1, 2, 4, 8, 16, 32},
		}, []string{"route"}),
	}
}

func (m *metrics) observe(err error, took time.Duration) {
	outcome := "ok"
	if err != nil {
		outcome = "failed"
	}
	m.states.WithLabelValues(outcome).Inc()
	m.seconds.Observe(took.Seconds())
}

func (m *metrics) aged(age time.Duration) { m.stateAge.Set(age.Seconds()) }
