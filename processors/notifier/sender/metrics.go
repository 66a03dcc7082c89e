package sender

import (
	"fmt"
	"slices"
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
			Namespace: "lienstream", Subsystem: "sender", Name: "attempts_total", Help: "Attempts to deliver a message, by result, kind of message and kind of server.",
		}, []string{"channel", "result", "class", "server"}),
		due: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "due_alerts", Help: "Alerts that are due and not sent, as far as the sender counts.",
		}, []string{"partition", "channel"}),
		oldest: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "oldest_due_seconds", Help: "How long the oldest due alert of a deal has been waiting, without those whose push service is known not to answer.",
		}, []string{"partition", "channel"}),
		unreported: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "unreported_total", Help: "Attempts whose result could not be recorded: they may be repeated.",
		}),
		doubtful: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "doubtful_refusals_total", Help: "Refusals that may be our fault: by the server's policy, or of our key.",
		}, []string{"channel"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "lienstream", Subsystem: "sender", Name: "clock_behind_seconds",
			Help: "How far the block time by which alerts fire is behind the chain's head.",
		}, []string{"partition", "confirmation"}),
	}
	for _, channel := range notifier.Channels { // a counter that does not exist has no increase, so an alert rule would miss its first count
		for _, result := range results {
			for _, class := range classes {
				for _, server := range servers[:1+channel/notifier.Push] { // only browsers choose their server
					m.attempts.WithLabelValues(channel.String(), result, class, server)
				}
			}
		}
	}
	reg.MustRegister(m.attempts, m.due, m.oldest, m.unreported, m.doubtful, m.behind)
	return m
}

var (
	results = []string{"sent", "retry", "dead", "gone", resultPaused, resultTired, resultOver, resultUnsent}
	classes = []string{"deal", "news", "request"}
	servers = []string{"known", "other"} // known: the operator's own servers and browsers' push services; other: any other that a subscriber names
)

// attempted counts an attempt. Alert rules about a channel leave out what anyone can cause: requests, and other
// servers.
func (m *metrics) attempted(d *due, result string) {
	class, server := classes[2], servers[0]
	if d.to.Stage.OfDeal() {
		class = classes[0]
	} else if d.to.Stage.OfNews() {
		class = classes[1]
	}
	if d.host != "" && !slices.Contains(services, d.host) {
		server = servers[1]
	}
	m.attempts.WithLabelValues(d.to.Channel.String(), result, class, server).Inc()
}

// waiting is the alerts that wait for a channel.
type waiting struct {
	n      int
	oldest time.Duration
}

// with adds an alert. counts: it counts for the oldest.
func (w waiting) with(since time.Duration, counts bool) waiting {
	if !counts {
		since = 0
	}
	return waiting{w.n + 1, max(w.oldest, since)}
}

// show sets the gauges of a partition.
func (m *metrics) show(partition int32, by map[notifier.Channel]waiting) {
	for _, channel := range notifier.Channels {
		of := by[channel]
		labels := []string{fmt.Sprint(partition), channel.String()}
		m.due.WithLabelValues(labels...).Set(float64(of.n))
		m.oldest.WithLabelValues(labels...).Set(of.oldest.Seconds())
	}
}

// forget drops the gauges of a partition that moved to another node.
func (m *metrics) forget(partition int32) {
	of := prometheus.Labels{"partition": fmt.Sprint(partition)}
	m.due.DeletePartialMatch(of)
	m.oldest.DeletePartialMatch(of)
	m.behind.DeletePartialMatch(of)
}
