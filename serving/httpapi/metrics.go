package httpapi

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	requests   *prometheus.CounterVec
	seconds    *prometheus.HistogramVec
	refused    prometheus.Counter
	panics     prometheus.Counter
	streams    prometheus.Gauge
	cacheHits  prometheus.Counter
	cacheBytes prometheus.Gauge
	unread     prometheus.Counter

	routes sync.Map // by path template: *routeMetrics
}

// routeMetrics are those of the usual answers of a route, whose labels are looked up once.
type routeMetrics struct {
	requests prometheus.Counter // of GET with 200
	seconds  prometheus.Observer
}

func (m *metrics) of(route string) *routeMetrics {
	known, ok := m.routes.Load(route)
	if !ok {
		known, _ = m.routes.LoadOrStore(route, &routeMetrics{
			m.requests.WithLabelValues(route, http.MethodGet, "200"), m.seconds.WithLabelValues(route),
		})
	}
	return known.(*routeMetrics)
}

func newMetrics(reg prometheus.Registerer, service string, unsent *atomic.Int64) *metrics {
	f := promauto.With(prometheus.WrapRegistererWith(prometheus.Labels{"service": service}, reg))
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lienstream_httpapi_unsent_bytes",
		Help: "Bytes of answers, and of streams, that clients have not taken yet.",
	}, func() float64 { return float64(unsent.Load()) })
	return &metrics{
		requests: f.NewCounterVec(prometheus.CounterOpts{
			Name: "lienstream_httpapi_requests_total",
			Help: "Responses, by route, method and status; 499: the client disconnected first.",
		}, []string{"route", "method", "status"}),
		seconds: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "lienstream_httpapi_request_seconds",
			Help:    "Time from receiving the request's headers to writing the last byte of the response; for a stream, to its headers.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .004, .006, .01, .025, .05, .1, .25, .5, 1, 5},
		}, []string{"route"}),
		refused: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_httpapi_refused_total",
			Help: "Requests refused because too many were in flight, in total or for one client, or because of the rate limit.",
		}),
		panics: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_httpapi_panics_total",
			Help: "Panics in handlers.",
		}),
		streams: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_httpapi_streams",
			Help: "Open streams.",
		}),
		cacheHits: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_httpapi_cache_hits_total",
			Help: "Requests answered from the cache.",
		}),
		cacheBytes: f.NewGauge(prometheus.GaugeOpts{
			Name: "lienstream_httpapi_cache_bytes",
			Help: "Upper bound of the bytes in the response cache.",
		}),
		unread: f.NewCounter(prometheus.CounterOpts{
			Name: "lienstream_httpapi_unread_total",
			Help: "Answers refused and streams ended because clients had not read what was sent before, in total or one client.",
		}),
	}
}

// methodName is a method for metrics and logs: one that there is not may be anything that a client sends.
func methodName(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

func (m *metrics) observe(route, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, methodName(method), strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}
