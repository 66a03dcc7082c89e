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
		records: counter("records_total", "Records of the input topic applied."),
		commits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "lienstream", Subsystem: "processors", Name: "commit_seconds",
			Help:    "Time from reading the end of a block until reads can see the block.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"partition"}),
		block:    gauge("block_number", "Last block applied by the partition."),
		lag:      gauge("lag_blocks", "Blocks by which the partition is behind the chain's head as last seen by the ingester."),
		restores: counter("restores_total", "Restores of a task from its changelog."),
		restored: counter("restored_records_total", "Changelog records applied by restores."),
		reverts:  counter("reverts_total", "Blocks reverted."),
		restarts: counter("restarts_total", "Restarts of a task after an error.", "reason"),
		unknown:  counter("unknown_records_total", "Records of the input topic that could not be decoded and were skipped."),
		held:     gauge("held", "1 if this node holds the partition in that role.", "role"),
		stopped:  gauge("stopped", "1 if an error stopped the task until an operator acts."),
		tried:    counter("standby_blocks_total", "Blocks that a standby applied itself because the owner had not committed them in time."),
	}
	reg.MustRegister(m.records, m.commits, m.block, m.lag, m.restores, m.restored, m.reverts, m.restarts,
		m.unknown, m.held, m.stopped, m.tried)
	return m
}

func label(partition int32) string { return strconv.Itoa(int(partition)) }

func partitionField(partition int32) zap.Field { return zap.Int32("partition", partition) }

// forget drops what is known of how far a partition is: another node may be further.
func (m *metrics) forget(partition int32) {
	m.block.DeleteLabelValues(label(partition))
	m.lag.DeleteLabelValues(label(partition))
}
