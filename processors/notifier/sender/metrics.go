package sender

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	attempts   *prometheus.CounterVec
	oldest     *prometheus.GaugeVec
	unreported prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "attempts_total", Help: "Attempts to deliver an alert, by result.",
		}, []string{"channel", "result"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "oldest_due_seconds", Help: "How long the oldest due alert has been waiting.",
		}, []string{"partition"}),
		unreported: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "unreported_total", Help: "Attempts whose result could not be recorded: they may be repeated.",
		}),
	}
	reg.MustRegister(m.attempts, m.oldest, m.unreported)
	return m
}
