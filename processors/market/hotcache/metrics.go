package hotcache

import "github.com/prometheus/client_golang/prometheus"

type readerMetrics struct {
	hits    prometheus.Counter
	misses  *prometheus.CounterVec
	seconds prometheus.Histogram
	open    prometheus.Gauge
	probes  *prometheus.CounterVec

	poolHits   prometheus.Counter
	poolMisses *prometheus.CounterVec
}

func newReaderMetrics(r prometheus.Registerer) *readerMetrics {
	m := &readerMetrics{
		hits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_hotcache_hits_total", Help: "Pages answered from Redis.",
		}),
		misses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_hotcache_misses_total", Help: "Pages that Redis could not answer, by reason.",
		}, []string{"reason"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lienstream_hotcache_read_seconds", Help: "Time of a read from Redis, hit or miss.",
			Buckets: []float64{.0002, .0005, .001, .002, .005, .01, .02, .03, .04, .05, .1},
		}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_hotcache_breaker_open", Help: "1 while reads skip Redis because it failed.",
		}),
		probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_hotcache_probes_total", Help: "Probes of Redis after it failed, by result.",
		}, []string{"result"}),
		poolHits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_hotcache_pool_hits_total", Help: "Pool overviews answered from Redis.",
		}),
		poolMisses: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_hotcache_pool_misses_total", Help: "Pool overviews that Redis could not answer, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range misses {
		m.misses.WithLabelValues(string(reason))
		m.poolMisses.WithLabelValues(string(reason))
	}
	r.MustRegister(m.hits, m.misses, m.seconds, m.open, m.probes, m.poolHits, m.poolMisses)
	return m
}

type writerMetrics struct {
	writes     *prometheus.CounterVec
	rows       prometheus.Counter
	rebuilds   *prometheus.CounterVec
	errors     prometheus.Counter
	pending    prometheus.Gauge
	ready      *prometheus.GaugeVec
	seconds    prometheus.Histogram
	evictions  prometheus.Gauge
	viewMisses prometheus.Counter
}

func newWriterMetrics(r prometheus.Registerer) *writerMetrics {
	m := &writerMetrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_hotcache_writes_total",
			Help: "Writes of a partition: applied, mismatch (Redis does not hold the expected state), refused (a newer owner writes).",
		}, []string{"result"}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_hotcache_rows_total", Help: "Rows written or removed.",
		}),
		rebuilds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_hotcache_rebuilds_total", Help: "Partitions rebuilt in Redis from the state, by reason.",
		}, []string{"reason"}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_hotcache_write_errors_total", Help: "Writes that failed or whose outcome is unknown.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_hotcache_pending_rows", Help: "Changed deals waiting to be written.",
		}),
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "lienstream_hotcache_partition_block", Help: "Last block of a partition written to Redis; 0: not built.",
		}, []string{"partition"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "lienstream_hotcache_flush_seconds", Help: "Time to write the pending deals.",
			Buckets: prometheus.ExponentialBuckets(.0005, 2, 14),
		}),
		evictions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_hotcache_eviction_possible", Help: "1 if Redis may evict keys: maxmemory-policy is not noeviction.",
		}),
		viewMisses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_hotcache_view_misses_total", Help: "Views that the engine no longer kept; retried at a later block.",
		}),
	}
	r.MustRegister(m.writes, m.rows, m.rebuilds, m.errors, m.pending, m.ready, m.seconds, m.evictions, m.viewMisses)
	return m
}

type poolWriterMetrics struct {
	writes *prometheus.CounterVec
	block  prometheus.Gauge
}

func newPoolWriterMetrics(r prometheus.Registerer) *poolWriterMetrics {
	m := &poolWriterMetrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_hotcache_pool_writes_total",
			Help: "Writes of the pool overview: applied, refused (Redis has a later one), error (or outcome unknown).",
		}, []string{"result"}),
		block: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_hotcache_pool_block", Help: "Last block whose pool overview was written to Redis.",
		}),
	}
	r.MustRegister(m.writes, m.block)
	return m
}
