package engine

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// metrics of a node. Partitions are few: their number is a label.
type metrics struct {
	records  *prometheus.CounterVec
	commits  *prometheus.HistogramVec
	block    *prometheus.GaugeVec
	lag      *prometheus.GaugeVec
	restores *prometheus.CounterVec
	restored *prometheus.CounterVec
	reverts  *prometheus.CounterVec
	restarts *prometheus.CounterVec
	unknown  *prometheus.CounterVec
	held     *prometheus.GaugeVec
	stopped  *prometheus.GaugeVec
	tried    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, app string) *metrics {
	reg = prometheus.WrapRegistererWith(prometheus.Labels{"application": app}, reg)
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "lienstream", Subsystem: "processors", Name: name, Help: help}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), append([]string{"partition"}, labels...))
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(opts(name, help)), append([]string{"partition"}, labels...))
	}
	m := &metrics{
		records: counter("records_total", "Records of the raw topic that were applied."),
		commits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "lienstream", Subsystem: "processors", Name: "commit_seconds",
			Help:    "Time from the end of a block to its being visible: transaction and batch.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"partition"}),
		block:    gauge("block_number", "Block that the partition is at."),
		lag:      gauge("lag_blocks", "Blocks between the partition and the chain's head as the ingester saw it."),
		restores: counter("restores_total", "Times that a task was restored from its changelog."),
		restored: counter("restored_records_total", "Changelog records applied by restores."),
		reverts:  counter("reverts_total", "Blocks taken back."),
		restarts: counter("restarts_total", "Times that a task started again after an error.", "reason"),
		unknown:  counter("unknown_records_total", "Raw records that could not be decoded and were passed over."),
		held:     gauge("held", "1 where this node holds the partition in that role.", "role"),
		stopped:  gauge("stopped", "1 where a fault stopped the task until a person acts."),
		tried:    counter("standby_blocks_total", "Blocks that a standby applied itself, because their owner was silent."),
	}
	reg.MustRegister(m.records, m.commits, m.block, m.lag, m.restores, m.restored, m.reverts, m.restarts,
		m.unknown, m.held, m.stopped, m.tried)
	return m
}

func label(partition int32) string { return strconv.Itoa(int(partition)) }

func partitionField(partition int32) zap.Field { return zap.Int32("partition", partition) }
