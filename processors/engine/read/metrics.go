package read

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	reads   *prometheus.CounterVec // by operation and outcome
	seconds *prometheus.HistogramVec
	refused *prometheus.CounterVec // by reason
	aligned prometheus.Counter
	rounds  prometheus.Counter
	hedged  prometheus.Counter
	nodes   prometheus.Gauge
}

// Reasons to reject a response.
const (
	refusedOld    = "older incarnation"
	refusedBehind = "older than an earlier answer"
	refusedFailed = "no answer"
)

func newMetrics(r prometheus.Registerer, application string) *metrics {
	if r != nil { // several applications may share a registerer
		r = prometheus.WrapRegistererWith(prometheus.Labels{"application": application}, r)
	}
	f := promauto.With(r)
	return &metrics{
		reads: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_query_reads_total",
			Help: "Reads, by operation and outcome: ok, empty, unavailable, error.",
		}, []string{"operation", "outcome"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_query_read_seconds",
			Help:    "Time of a read.",
			Buckets: prometheus.ExponentialBuckets(20e-6, 2.5, 14),
		}, []string{"operation"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_query_refused_total",
			Help: "Responses of nodes that were rejected, by reason.",
		}, []string{"reason"}),
		aligned: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_query_aligned_total",
			Help: "Rounds that needed a second request, at the lowest block of the first responses.",
		}),
		rounds: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_query_rounds_total",
			Help: "Rounds of requests to nodes; a read normally takes one.",
		}),
		hedged: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_query_hedged_total",
			Help: "Hedged rounds: second rounds started because nodes were slow to respond.",
		}),
		nodes: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_query_nodes",
			Help: "Other known nodes.",
		}),
	}
}
