package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// What is sent by many at once is there, each at the offset that its sender was told.
func sentIsThere(t *testing.T, b *testBroker) {
	p, err := kafka.NewProducer(b.cfg, "p", kafka.ProducerOptions{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	topic := b.cat.Commands(topics.AppNotifier)
	const senders, each = 8, 20
	told := make([]string, senders*each)
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				value := fmt.Sprintf("%d-%d", s, i)
				offset, err := p.Send(t.Context(), &kafka.Record{Topic: topic, Partition: 2, Key: []byte("k"), Value: []byte(value)})
				if err != nil || offset < 0 || offset >= senders*each {
					t.Errorf("sent %s: offset %d, %v", value, offset, err)
					return
				}
				told[offset] = value
			}
		})
	}
	wg.Wait()
	var read []string
	err = kafka.ReadBack(t.Context(), b.cfg, topic, 2, 0, func(r *kafka.Record) bool {
		read = append(read, string(r.Value))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(read)
	if !slices.Equal(read, told) {
		t.Fatalf("read %v, told %v", read, told)
	}
	_, err = p.Send(t.Context(), &kafka.Record{Topic: topic, Value: make([]byte, topics.MaxRecordBytes+1)})
	if !errors.Is(err, kafka.ErrRefused) {
		t.Fatalf("a record that is too large: %v", err)
	}
}

// The time of a command is the broker's, whatever its sender's clock says.
func commandsHaveTheBrokersTime(t *testing.T, b *testBroker) {
	p, err := kafka.NewProducer(b.cfg, "p", kafka.ProducerOptions{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	topic := b.cat.Commands(topics.AppSupport)
	began := time.Now()
	if _, err := p.Send(t.Context(), &kafka.Record{Topic: topic, Value: []byte("v"), Timestamp: began.Add(30 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	var times []time.Time
	if err := kafka.ReadBack(t.Context(), b.cfg, topic, 0, 0, func(r *kafka.Record) bool {
		times = append(times, r.Timestamp)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	r, err := kafka.NewReader(b.cfg, topic, 0, kafka.Start, kafka.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(times) < 2 {
		records, err := r.Poll(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range records {
			times = append(times, rec.Timestamp)
		}
	}
	for _, at := range times {
		if apart := at.Sub(began).Abs(); apart > 10*time.Minute {
			t.Errorf("a command has the time %s, which is %s from now", at, apart)
		}
	}
}

// A broker that is not there leaves it open whether the record was written, in bounded time.
func TestSendToNobody(t *testing.T) {
	p, err := kafka.NewProducer(brokertest.Config([]string{"127.0.0.1:1"}, "p"), "p", kafka.ProducerOptions{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	began := time.Now()
	if _, err := p.Send(t.Context(), &kafka.Record{Topic: "t"}); !errors.Is(err, kafka.ErrUnknown) {
		t.Fatalf("send: %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Fatalf("it took %s", took)
	}
}
