package devchain

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics count what a scenario did.
type metrics struct {
	blocks       prometheus.Counter
	transactions prometheus.Counter
	reverted     prometheus.Counter
	events       prometheus.Counter
	reorgs       prometheus.Counter
	dropped      prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	factory := promauto.With(registerer)
	counter := func(name, help string) prometheus.Counter {
		return factory.NewCounter(prometheus.CounterOpts{Name: "lienstream_devchain_" + name, Help: help})
	}
	return &metrics{
		blocks:       counter("blocks_total", "Blocks mined."),
		transactions: counter("transactions_total", "Transactions mined."),
		reverted:     counter("transactions_reverted_total", "Transactions mined that reverted."),
		events:       counter("logs_total", "Logs mined."),
		reorgs:       counter("reorgs_total", "Rewinds of the chain."),
		dropped:      counter("blocks_dropped_total", "Blocks dropped by rewinds."),
	}
}
