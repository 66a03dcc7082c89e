package support

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	reports      *prometheus.CounterVec
	payments     *prometheus.CounterVec
	settleErrors *prometheus.CounterVec
	chainErrors  prometheus.Counter
	driveErrors  prometheus.Counter
	driven       prometheus.Gauge
	undecided    prometheus.Gauge
	oldest       prometheus.Gauge
	oldestRefund prometheus.Gauge
	float        prometheus.Gauge
	gas          prometheus.Gauge
	head         prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "lienstream_support_" + name, Help: help}, labels)
		reg.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "lienstream_support_" + name, Help: help})
		reg.MustRegister(g)
		return g
	}
	return &metrics{
		reports:      counter("reports_total", "Requests to /reports, by what they came to.", "outcome"),
		payments:     counter("payments_total", "Payments moved, by where to.", "to"),
		settleErrors: counter("settle_errors_total", "Failures to hand a payment to the chain, by kind.", "kind"),
		chainErrors:  counter("chain_errors_total", "Reads of the payment chain that failed.").WithLabelValues(),
		driveErrors:  counter("drive_errors_total", "Steps of a payment that failed.").WithLabelValues(),
		driven:       gauge("payments_driven", "Payments that this process follows."),
		undecided:    gauge("payments_undecided", "Payments of which the chain has not said its last word."),
		oldest:       gauge("oldest_unpaid_seconds", "Age of the oldest payment that is reserved and neither paid nor void."),
		oldestRefund: gauge("oldest_refund_seconds", "Age of the oldest refund that is signed and not on the chain for good."),
		float:        gauge("float_units", "What the float has of the deposits' asset, in its smallest unit; 0 where none is watched."),
		gas:          gauge("relayer_gas_ether", "What the relayer has for gas."),
		head:         gauge("payment_chain_head", "Block of the payment chain that was last seen."),
	}
}
