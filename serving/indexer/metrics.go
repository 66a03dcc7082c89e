package indexer

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Where what a caller lacked came from.
const (
	resumedFeed       = "feed"
	resumedProcessors = "processors"
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
			Name: "lienstream_indexer_stream_blocks_total", Help: "Blocks, or runs of blocks, that the stream told of.",
		}),
		resumed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_indexer_stream_resumed_total",
			Help: "Streams that went on after an event, by where what they lacked came from.",
		}, []string{"from"}),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_indexer_stream_dropped_total", Help: "Streams ended because the caller fell behind.",
		}),
		restarts: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_indexer_stream_restarts_total", Help: "Times that all streams had to begin anew.",
		}),
	}
}
