package hotcache

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lienstream/lienstream/processors/engine"
)

// scripts counts those that a client runs.
type scripts struct{ n int }

func (s *scripts) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (s *scripts) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (s *scripts) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		s.n += len(commands)
		return next(ctx, commands)
	}
}

// TestPartitionsOfABlockShareAWrite: the partitions reach a block one after the other, here without any time between, and are
// written together.
func TestPartitionsOfABlockShareAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		first, err := server.Dial() // starts it without a port
		if err != nil {
			t.Fatal(err)
		}
		cfg := testConfig("redis://redis", 8)
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			server.Server().ServeConn(theirs)
			return ours, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := newTestWriter(t, cfg, nil)
		if err := writeScript.Load(ctx, w.client).Err(); err != nil {
			t.Fatal(err)
		}
		if err := moveScript.Load(ctx, w.client).Err(); err != nil {
			t.Fatal(err)
		}
		for p := range cfg.Partitions {
			w.pending.opened(engine.Partition{ID: p, Incarnation: 1}, block(1, 0))
			job, _ := w.pending.take(p)
			w.states[p] = &written{incarnation: 1, state: w.ready(&job)}
			if err := w.client.HSet(ctx, w.keys.meta, p, w.states[p].state).Err(); err != nil {
				t.Fatal(err)
			}
		}
		<-w.pending.wake
		ran := new(scripts)
		w.client.AddHook(ran)
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		for number := range uint64(3) {
			for p := range cfg.Partitions {
				w.pending.applied(engine.Partition{ID: p, Incarnation: 1}, block(2+number, 0), nil)
				synctest.Wait()
			}
			<-time.After(2 * lingerFor)
			if want := int(1 + number); ran.n != want {
				t.Errorf("%d scripts for %d blocks", ran.n, want)
			}
		}
		cancel()
		if err := errors.Join(<-ended, first.Close()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
}

// TestMovesShareAScript: partitions without changed rows move in one script, each on its own: one that somebody else has
// written stays, and is reported. A script that Redis lacks is loaded, whether or not it has the other one.
func TestMovesShareAScript(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		const partitions = 8
		ctx, client := context.Background(), admin(t, url)
		w := newTestWriter(t, testConfig(url, partitions), nil)
		at := 0
		batch := func(from int) (all []*write) {
			at++
			for p := range int32(partitions) {
				b := &write{partition: p, to: fmt.Sprint("state ", at), barrier: barrier(block(uint64(at), 0)), keep: 2}
				if from > 0 {
					b.from = fmt.Sprint("state ", from)
				}
				all = append(all, b)
			}
			return all
		}
		if err := errors.Join(w.run(ctx, batch(0))...); err != nil {
			t.Fatal(err)
		}
		if err := client.HSet(ctx, w.keys.meta, "3", "another's").Err(); err != nil {
			t.Fatal(err)
		}
		ran := new(scripts)
		w.client.AddHook(ran)
		for p, err := range w.run(ctx, batch(1)) {
			if wrong := p == 3; errors.Is(err, errMismatch) != wrong || !wrong && err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
		}
		if ran.n != 1 {
			t.Errorf("%d scripts for one block", ran.n)
		}
		if err := client.ScriptFlush(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := writeScript.Load(ctx, client).Err(); err != nil {
			t.Fatal(err)
		}
		changed := batch(2)
		changed[5].entries = []entry{{key: []byte("gone")}}
		for p, err := range w.run(ctx, changed) {
			if p != 3 && err != nil {
				t.Errorf("partition %d: %v", p, err)
			}
		}
		meta, err := client.HGetAll(ctx, w.keys.meta).Result()
		if err != nil {
			t.Fatal(err)
		}
		for p := range partitions {
			state, blocks := "state 3", []uint64{2, 3}
			if p == 3 {
				state, blocks = "another's", []uint64{1}
			}
			var kept string
			for _, n := range blocks {
				kept += barrier(block(n, 0))
			}
			if got := meta[fmt.Sprint(p)]; got != state {
				t.Errorf("partition %d has state %q, want %q", p, got, state)
			}
			if got := meta[fmt.Sprint("h", p)]; got != kept {
				t.Errorf("partition %d keeps barriers %x, want %x", p, got, kept)
			}
		}
	})
}
