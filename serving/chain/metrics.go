package chain

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests      *prometheus.CounterVec
	calls         *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	failures      *prometheus.CounterVec
	disagreements prometheus.Counter
	unconfirmed   prometheus.Counter
	alone         prometheus.Gauge
	contradicted  *prometheus.CounterVec
	head          prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_chain_requests_total",
			Help: "Requests to endpoints of the chain; a batch is one.",
		}, []string{"endpoint"}),
		calls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_chain_calls_total",
			Help: "Calls in requests, by method and result: ok, reverted, refused, gone, unsupported, failed.",
		}, []string{"method", "outcome"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_chain_request_seconds",
			Help:    "Time of a successful request to an endpoint.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"endpoint"}),
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_chain_failures_total",
			Help: "Requests that failed, or whose response was invalid.",
		}, []string{"endpoint"}),
		disagreements: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_chain_disagreements_total",
			Help: "Head polls in which endpoints had different blocks at one height, and no majority had the same.",
		}),
		unconfirmed: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_chain_unconfirmed_total",
			Help: "Head polls that did not confirm the block of an endpoint: another endpoint did not return its block at that height, stopped responding a moment ago, or went away after they disagreed.",
		}),
		alone: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_chain_alone",
			Help: "1 while one of two nodes is believed alone, because the other has been away for long.",
		}),
		contradicted: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_chain_contradicted_total",
			Help: "How often two nodes contradicted an endpoint. It is asked last from then on, until it agrees with another.",
		}, []string{"endpoint"}),
		head: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_chain_head_block",
			Help: "Number of the newest block that the live endpoints agree on.",
		}),
	}
}

func (m *metrics) answered(endpoint string, took time.Duration) {
	m.seconds.WithLabelValues(endpoint).Observe(took.Seconds())
}

// outcome is the metric label of a call's result.
func outcome(err error) string {
	if _, ok := errors.AsType[*RevertError](err); ok {
		return "reverted"
	}
	if _, ok := errors.AsType[*NodeError](err); ok {
		return "refused"
	}
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, ErrBlockGone):
		return "gone"
	case errors.Is(err, ErrUnsupported):
		return "unsupported"
	}
	return "failed"
}
