package rpc

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	lies     *prometheus.CounterVec
	logs     prometheus.Counter
	suspects prometheus.Counter
	proved   prometheus.Counter
	unproved prometheus.Counter
	proves   *prometheus.GaugeVec
	noBloom  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_ingest_rpc_requests_total", Help: "Requests sent, batches counted once.",
		}, []string{"endpoint", "method"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name: "lienstream_ingest_rpc_request_duration_seconds", Help: "Time of one request, decoding included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"endpoint"}),
		errors: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_ingest_rpc_errors_total", Help: "Failed requests, by how the client reacts; slow: another endpoint, asked later, answered first.",
		}, []string{"endpoint", "class"}),
		lies: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_ingest_rpc_lies_total", Help: "Responses that contradict themselves, the header chain or another endpoint.",
		}, []string{"endpoint", "lie"}),
		logs: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_ingest_rpc_logs_total", Help: "Logs received and verified.",
		}),
		suspects: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_ingest_rpc_bloom_suspicions_total", Help: "Blocks whose bloom filter matches although no logs were returned; most are false positives.",
		}),
		proved: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_ingest_rpc_proved_blocks_total", Help: "Blocks whose logs were verified against the receipts root of their header.",
		}),
		unproved: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_ingest_rpc_unproved_blocks_total", Help: "Blocks whose logs were verified, but not the hashes of their transactions: no endpoint has these in signed form.",
		}),
		noBloom: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_ingest_rpc_no_bloom", Help: "1 while the receipts of every block are fetched, because the chain's bloom filters lack logs, else 0.",
		}),
		proves: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lienstream_ingest_rpc_endpoint_proves", Help: "1 if at startup the endpoint could prove a header and the logs of a block, else 0.",
		}, []string{"endpoint"}),
	}
}
