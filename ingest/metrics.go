package ingest

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	records     prometheus.Counter
	barriers    prometheus.Counter
	reverts     prometheus.Counter
	reorgs      prometheus.Counter
	heartbeats  prometheus.Counter
	commits     prometheus.Histogram
	sessions    prometheus.Counter
	probes      prometheus.Counter
	probesBlind prometheus.Counter
	unlinked    prometheus.Counter
	gone        prometheus.Counter
	unknown     prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, b *board) *metrics {
	f := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: "lienstream_ingest_" + name, Help: help})
	}
	gauge := func(name, help string, value func(Status) float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: "lienstream_ingest_" + name, Help: help}, func() float64 { return value(b.get()) })
	}
	gauge("head_block", "Head of the chain.", func(s Status) float64 { return float64(s.Head) })
	gauge("published_block", "Last barrier committed.", func(s Status) float64 { return float64(s.Published.Number) })
	gauge("finalized_block", "Block at and below which nothing is reverted.", func(s Status) float64 { return float64(s.Finalized) })
	gauge("standby", "1 while another ingester is active and this one waits.", func(s Status) float64 {
		if s.Phase == PhaseStandby {
			return 1
		}
		return 0
	})
	gauge("head_age_seconds", "Time since a head was last heard of.", func(s Status) float64 { return time.Since(s.HeadAt).Seconds() })
	gauge("commit_age_seconds", "Time since the last commit.", func(s Status) float64 { return time.Since(s.CommitAt).Seconds() })
	return &metrics{
		records:    counter("records_total", "Logs and probes committed."),
		barriers:   counter("barriers_total", "Blocks committed with a barrier, repetitions not counted."),
		reverts:    counter("reverts_total", "Barriers taken back."),
		reorgs:     counter("reorgs_total", "Transactions that took barriers back."),
		heartbeats: counter("heartbeats_total", "Repetitions of the last barrier."),
		commits: f.NewHistogram(prometheus.HistogramOpts{
			Name: "lienstream_ingest_commit_duration_seconds", Help: "Time of one transaction.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		sessions:    counter("sessions_failed_total", "Sessions that ended in an error and were started again from the topic."),
		probes:      counter("probes_total", "Tokens probed."),
		probesBlind: counter("probes_blind_total", "Probes that found no answer: their fields are empty, and the token is asked again later."),
		unlinked:    counter("unlinked_total", "Answers that did not link to the verified chain: reorgs, or wrong nodes."),
		gone:        counter("gone_total", "Fetches that no endpoint could answer: blocks reorganised away or not there yet."),
		unknown:     counter("unknown_records_total", "Records of the raw topic that could not be decoded when it was read back, and were passed over."),
	}
}
