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
			Help: "Responses, by error code; OK: success, HUNG_UP: the caller did not wait. Of MCP messages those count that call a tool, once, and those refused.",
		}, []string{"code"}),
		prepared: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_agent_prepared_total",
			Help: "Transactions prepared, by action.",
		}, []string{"action"}),
		simulations: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_agent_simulation_seconds",
			Help:    "Time to simulate a transaction, by method.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"method"}),
		requests: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_agent_chain_requests",
			Help:    "Requests to nodes per response, by route; a batch counts as one.",
			Buckets: []float64{0, 1, 2, 3, 5, 10},
		}, []string{"route"}),
		limiterAway: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_agent_limiter_away_total",
			Help: "Requests limited by this node alone because the shared limits were unavailable.",
		}),
	}
}
