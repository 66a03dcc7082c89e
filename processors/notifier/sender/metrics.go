package sender

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/notifier"
)

type metrics struct {
	attempts   *prometheus.CounterVec
	due        *prometheus.GaugeVec
	oldest     *prometheus.GaugeVec
	unreported prometheus.Counter
	doubtful   *prometheus.CounterVec
	behind     *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "attempts_total", Help: "Attempts to deliver an alert, by result.",
		}, []string{"channel", "result"}),
		due: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "due_alerts", Help: "Alerts that are due and not sent, as far as the sender counts.",
		}, []string{"partition", "channel"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "oldest_due_seconds", Help: "How long the oldest due alert of a deal has been waiting, of those whose push service is not known to be silent.",
		}, []string{"partition", "channel"}),
		unreported: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "unreported_total", Help: "Attempts whose result could not be recorded: they may be repeated.",
		}),
		doubtful: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "doubtful_refusals_total", Help: "Refusals that may be of us: by policy, or of our key.",
		}, []string{"channel"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "clock_behind_seconds",
			Help: "How far the block time by which alerts fire is behind the chain's head.",
		}, []string{"partition"}),
	}
	reg.MustRegister(m.attempts, m.due, m.oldest, m.unreported, m.doubtful, m.behind)
	return m
}

// waiting is what waits for a channel.
type waiting struct {
	n      int
	oldest time.Duration
}

// with adds an alert, which may not count for what is oldest.
func (w waiting) with(since time.Duration, counts bool) waiting {
	if !counts {
		since = 0
	}
	return waiting{w.n + 1, max(w.oldest, since)}
}

// show sets what waits in a partition.
func (m *metrics) show(partition int32, by map[notifier.Channel]waiting) {
	for _, channel := range notifier.Channels {
		of := by[channel]
		labels := []string{fmt.Sprint(partition), channel.String()}
		m.due.WithLabelValues(labels...).Set(float64(of.n))
		m.oldest.WithLabelValues(labels...).Set(of.oldest.Seconds())
	}
}

// forget drops what is known of a partition that moved to another node.
func (m *metrics) forget(partition int32) {
	of := prometheus.Labels{"partition": fmt.Sprint(partition)}
	m.due.DeletePartialMatch(of)
	m.oldest.DeletePartialMatch(of)
	m.behind.DeletePartialMatch(of)
}
