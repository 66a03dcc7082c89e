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
	float        *prometheus.GaugeVec // none where there is no such account
	gas          *prometheus.GaugeVec
	head         prometheus.Gauge
	headRead     prometheus.Gauge
	deskRead     prometheus.Gauge
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
	balance := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "lienstream_support_" + name, Help: help}, []string{"account"})
		reg.MustRegister(g)
		return g
	}
	return &metrics{
		reports:      counter("reports_total", "Requests to /reports, by result.", "outcome"),
		payments:     counter("payments_total", "State changes of payments, by new state.", "to"),
		settleErrors: counter("settle_errors_total", "Failures to submit a payment to the chain, by kind.", "kind"),
		chainErrors:  counter("chain_errors_total", "Failed reads of the payment chain.").WithLabelValues(),
		driveErrors:  counter("drive_errors_total", "Failed steps of payments.").WithLabelValues(),
		driven:       gauge("payments_driven", "Payments that this process is settling."),
		undecided:    gauge("payments_undecided", "Payments that are not final on the chain."),
		oldest:       gauge("oldest_unpaid_seconds", "Age of the oldest reserved payment that is neither paid nor void."),
		oldestRefund: gauge("oldest_refund_seconds", "Age of the oldest signed refund that is not final on the chain."),
		float:        balance("float_units", "Balance of the float in the deposit asset's smallest unit."),
		gas:          balance("relayer_gas_ether", "Gas balance of the relayer."),
		head:         gauge("payment_chain_head", "Head of the payment chain as last seen."),
		headRead:     gauge("payment_chain_read_timestamp_seconds", "When the payment chain's head was last read."),
		deskRead:     gauge("desk_read_timestamp_seconds", "When all undecided payments were last read."),
	}
}
