package main

import (
	"context"
	"fmt"
	"time"
)

// codecs are what --kafka-compression takes, but for gzip.
var codecs = []string{"snappy", "lz4", "zstd", "none"}

// broker measures what the processors ask of the broker with each compression, everything from the raw topic with events, in
// turns. The reference is that of the default.
func (b *bench) broker(ctx context.Context) error {
	return b.onWarmRaw(ctx, 6*time.Minute, b.byCodec)
}

func (b *bench) byCodec(ctx context.Context, raw *raw) error {
	rows := []struct{ name, unit string }{
		{"time", "s"},
		{"processor time", "s"},
		{"the broker's per log", "µs"},
		{"peak memory", "MB"},
		{"records per log, markers too", ""},
		{"written to the broker per log", "bytes"},
		{"of a batch", "bytes"},
		{"compressed to the part", ""},
	}
	logs := float64(b.Logs)
	all := map[string][][]float64{}
	for range b.runs {
		for _, codec := range codecs {
			if err := raw.forget(ctx); err != nil {
				return err
			}
			took, err := raw.process(ctx, "--kafka-compression="+codec, "--memory="+b.memoryOf.String())
			if err != nil {
				return fmt.Errorf("%s: %w", codec, err)
			}
			v, err := raw.out.volume(ctx, raw.catalogue().Prefix+".", raw.catalogue().Raw())
			if err != nil {
				return err
			}
			for i, value := range []float64{
				took.wall.Seconds(), took.used.Seconds(), took.brokers.Seconds() * 1e6 / logs, float64(took.peak) / 1e6,
				v.records / logs, v.size / logs, v.size / v.batches, v.size / v.uncompressed,
			} {
				if all[codec] == nil {
					all[codec] = make([][]float64, len(rows))
				}
				all[codec][i] = append(all[codec][i], value)
			}
			b.note("%s: %.2f s (%.2f s of processor time, the broker's %.2f), %d MB, %.2f records and %.0f bytes per log", codec,
				took.wall.Seconds(), took.used.Seconds(), took.brokers.Seconds(), took.peak/1e6, v.records/logs, v.size/logs)
		}
	}
	for _, codec := range codecs {
		for i, row := range rows {
			b.addSpread(fmt.Sprintf("processors with %s, %s", codec, row.name), row.unit, all[codec][i], all[codecs[0]][i], goal{})
		}
	}
	return nil
}
