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

// Why an answer is not taken.
const (
	refusedOld    = "older incarnation"
	refusedBehind = "behind an earlier answer"
	refusedFailed = "no answer"
)

func newMetrics(r prometheus.Registerer, application string) *metrics {
	if r != nil { // several applications may share one
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
			Help:    "Time that a read took.",
			Buckets: prometheus.ExponentialBuckets(20e-6, 2.5, 14),
		}, []string{"operation"}),
		refused: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_query_refused_total",
			Help: "Answers of nodes that were not taken, by reason.",
		}, []string{"reason"}),
		aligned: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_query_aligned_total",
			Help: "Rounds in which nodes were asked again, at the lowest block of the first answers.",
		}),
		rounds: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_query_rounds_total",
			Help: "Rounds of asking nodes; a read takes one where nothing is amiss.",
		}),
		hedged: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_query_hedged_total",
			Help: "Rounds that were begun because nodes kept another waiting.",
		}),
		nodes: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_query_nodes",
			Help: "Other nodes that are known.",
		}),
	}
}
