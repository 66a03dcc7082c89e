package indexer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Sources of missed changes.
const (
	resumedFeed       = "feed"
	resumedProcessors = "processors"
	resumedShared     = "shared" // they were read for another client
	resumedNot        = "nowhere"
)

type metrics struct {
	blocks   prometheus.Counter
	resumed  *prometheus.CounterVec
	dropped  prometheus.Counter
	restarts prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		blocks: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_indexer_stream_blocks_total", Help: "Events sent to streams, each for one block or a range of blocks.",
		}),
		resumed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_indexer_stream_resumed_total",
			Help: "Streams resumed after an event, by where the missed changes came from.",
		}, []string{"from"}),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_indexer_stream_dropped_total", Help: "Streams closed because the client fell behind.",
		}),
		restarts: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_indexer_stream_restarts_total", Help: "Resets of all streams.",
		}),
	}
}
