package ingest

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lienstream/lienstream/topics"
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
	low         prometheus.Counter
	unknown     prometheus.Counter
	cut         prometheus.Counter
	joined      prometheus.Counter
	followed    prometheus.Gauge
	unfollowed  prometheus.Counter
	faulted     *prometheus.CounterVec
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
	gauge("published_block", "Block of the last committed barrier.", func(s Status) float64 { return float64(s.Published.Number) })
	gauge("finalized_block", "Last final block.", func(s Status) float64 { return float64(s.Finalized) })
	gauge("standby", "1 while this ingester stands by.", func(s Status) float64 {
		if s.Phase == PhaseStandby {
			return 1
		}
		return 0
	})
	gauge("disputed", "1 while the endpoints do not agree on a block, so that nothing becomes final.", func(s Status) float64 {
		if s.Disputed != "" {
			return 1
		}
		return 0
	})
	gauge("alone", "1 while one of several endpoints alone decides what is final, because the others have shown nothing new for --rpc-alone.", func(s Status) float64 {
		if s.Alone != "" {
			return 1
		}
		return 0
	})
	gauge("stuck_block", "The block that does not come in, because what endpoints return for it is wrong, unproved or an error; 0: none.", func(s Status) float64 { return float64(s.StuckBlock) })
	gauge("head_age_seconds", "Time since the last head was received.", func(s Status) float64 { return time.Since(s.HeadAt).Seconds() })
	gauge("commit_age_seconds", "Time since the last commit.", func(s Status) float64 { return time.Since(s.CommitAt).Seconds() })
	return &metrics{
		records:    counter("records_total", "Logs and probes committed."),
		barriers:   counter("barriers_total", "Blocks committed with a barrier; repeated barriers are not counted."),
		reverts:    counter("reverts_total", "Barriers reverted."),
		reorgs:     counter("reorgs_total", "Transactions that reverted barriers."),
		heartbeats: counter("heartbeats_total", "Repetitions of the last barrier."),
		commits: f.NewHistogram(prometheus.HistogramOpts{
			Name: "lienstream_ingest_commit_duration_seconds", Help: "Time of one transaction.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}),
		sessions:    counter("sessions_failed_total", "Sessions that failed and were restarted."),
		probes:      counter("probes_total", "Tokens probed."),
		probesBlind: counter("probes_blind_total", "Probes without an answer: their fields are empty, and the token is probed again later."),
		unlinked:    counter("unlinked_total", "Responses that did not link to the verified chain, because of a reorg or a faulty node."),
		gone:        counter("gone_total", "Fetches that no endpoint could answer, because the blocks were reorged out or do not exist yet."),
		low:         counter("heads_too_low_total", "Heads below what is final, which were ignored."),
		joined:      counter("tokens_joined_total", "Meme tokens whose history was read, after which their transfers are followed."),
		followed: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_ingest_tokens_followed", Help: fmt.Sprintf("Meme tokens whose transfers are followed, at most %d.", maxFollowed),
		}),
		unfollowed: counter("tokens_not_followed_total", "Meme tokens that did not join because there are too many."),
		faulted: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_ingest_ledgers_faulted_total", Help: "Meme tokens whose holders stay unknown, by reason.",
		}, []string{"fault"}),
		cut:     counter("logs_cut_total", fmt.Sprintf("Logs whose data was cut to the first %d bytes.", topics.MaxLogData)),
		unknown: counter("unknown_records_total", "Records of the raw topic that could not be decoded when the ingester read its position, and were skipped."),
	}
}
