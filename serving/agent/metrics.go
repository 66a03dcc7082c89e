package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	answers     *prometheus.CounterVec
	prepared    *prometheus.CounterVec
	simulations *prometheus.HistogramVec
	requests    *prometheus.HistogramVec
	limiterAway prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		answers: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_agent_answers_total",
			Help: "Answers of handlers, by code; OK: a success.",
		}, []string{"code"}),
		prepared: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_agent_prepared_total",
			Help: "Transactions prepared, by action.",
		}, []string{"action"}),
		simulations: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_agent_simulation_seconds",
			Help:    "Time of simulating a transaction, by the method that did it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"method"}),
		requests: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_agent_chain_requests",
			Help:    "Requests to nodes of the chain for one answer, by route; a batch is one.",
			Buckets: []float64{0, 1, 2, 3, 5, 10},
		}, []string{"route"}),
		limiterAway: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_agent_limiter_away_total",
			Help: "Requests that were limited by this node alone, since the shared limits could not be asked.",
		}),
	}
}
