package kafka

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// metricsHook counts a client's connections, bytes, records and errors, labelled with the client's name.
func metricsHook(reg prometheus.Registerer, name string) kgo.Hook {
	return kprom.NewMetrics("lienstream_kafka",
		kprom.Registerer(latest{reg}),
		kprom.FetchAndProduceDetail(kprom.ByTopic, kprom.Records, kprom.CompressedBytes, kprom.UncompressedBytes),
		kprom.WithStaticLabel(prometheus.Labels{"client": name}))
}

// latest lets a client take over the metrics of an earlier one of the same name, so that a restarted task need
// not wait until its old client is closed.
type latest struct{ prometheus.Registerer }

func (r latest) Register(c prometheus.Collector) error {
	err := r.Registerer.Register(c)
	if dup, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		r.Registerer.Unregister(dup.ExistingCollector)
		return r.Registerer.Register(c)
	}
	return err
}

func (r latest) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister removes c, but not a collector of the same name that has replaced it.
func (r latest) Unregister(c prometheus.Collector) bool {
	if dup, ok := errors.AsType[prometheus.AlreadyRegisteredError](r.Registerer.Register(c)); ok && dup.ExistingCollector != c {
		return false
	}
	return r.Registerer.Unregister(c)
}
