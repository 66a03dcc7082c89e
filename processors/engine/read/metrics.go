package read

import (
	"sync"

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

	operations sync.Map // by name: *operationMetrics
}

// operationMetrics are those of an operation, whose labels are looked up once.
type operationMetrics struct {
	reads   map[string]prometheus.Counter // by outcome
	seconds prometheus.Observer
}

func (m *metrics) of(operation string) *operationMetrics {
	known, ok := m.operations.Load(operation)
	if !ok {
		fresh := &operationMetrics{map[string]prometheus.Counter{}, m.seconds.WithLabelValues(operation)}
		for _, outcome := range []string{"ok", "empty", "unavailable", "error"} {
			fresh.reads[outcome] = m.reads.WithLabelValues(operation, outcome)
		}
		known, _ = m.operations.LoadOrStore(operation, fresh)
	}
	return known.(*operationMetrics)
}

// Reasons to reject a response.
const (
	refusedOld     = "older incarnation"
	refusedBehind  = "older than an earlier answer"
	refusedFailed  = "no answer"
	refusedStandby = "no longer the owner"
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
