package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// fleet is every role as a process of its own, with two nodes of processors.
type fleet struct {
	w         *world
	addr      string // of the indexer
	processes map[string]*process
	ops       map[string]string
}

// newFleet starts the roles on topics of their own and waits until everything is served and followed.
func (w *world) newFleet(ctx context.Context) (*fleet, error) {
	w.runs++
	name := fmt.Sprintf("%s-%d", w.kind, w.runs)
	p := &pipeline{w: w, name: name}
	p.topics = append([]string{fmt.Sprintf("--kafka-partitions=%d", w.cfg.partitions), "--kafka-prefix=" + name}, w.servers...)
	if err := w.provision(p); err != nil {
		return nil, err
	}
	f := &fleet{w: w, addr: address(), processes: map[string]*process{}, ops: map[string]string{}}
	common := append(p.topics, w.chain.flags(false)...)
	for _, role := range []struct {
		name string
		args []string
	}{
		{"ingest", []string{"ingest"}},
		{"a", []string{"processors", "--instance=a", "--data-dir=" + filepath.Join(w.cfg.dir, name+"-a")}},
		{"b", []string{"processors", "--instance=b", "--data-dir=" + filepath.Join(w.cfg.dir, name+"-b")}},
		{"serving", []string{"serving", "--indexer-addr=" + f.addr}},
	} {
		f.ops[role.name] = address()
		query := address()
		args := append(append(role.args, "--ops-addr="+f.ops[role.name], "--query-addr="+query, "--advertise="+query), common...)
		started, err := start(w.cfg, name+"-"+role.name, args...)
		if err != nil {
			return f, err
		}
		f.processes[role.name] = started
	}
	if err := until(ctx, f.processes["serving"], indexed(f.addr, w.chain.head)); err != nil {
		return f, err
	}
	return f, until(ctx, f.processes["a"], f.followed)
}

func (f *fleet) close() {
	for _, p := range f.processes {
		p.kill()
	}
}

// followed is satisfied when every partition has an owner and a standby, and each node owns some.
func (f *fleet) followed(ctx context.Context) error {
	held := 0
	for _, node := range []string{"a", "b"} {
		text, _, _, err := fetch(ctx, "http://"+f.ops[node]+"/metrics")
		if err != nil {
			return err
		}
		owns := 0
		for line := range strings.Lines(string(text)) { // …held{partition="3",role="owner"} 1
			if !strings.HasPrefix(line, "lienstream_processors_held{") || !strings.HasSuffix(line, " 1\n") {
				continue
			}
			held++
			if strings.Contains(line, `role="owner"`) {
				owns++
			}
		}
		if owns == 0 {
			return fmt.Errorf("node %s owns nothing", node)
		}
	}
	if want := 2 * f.w.cfg.partitions; held != want {
		return fmt.Errorf("%d of %d partitions are held", held, want)
	}
	return nil
}

// roles measures the roles apart: their memory after a backfill, their processor time at the tip, and for
// how long a read fails when a node of the processors is killed.
func (b *bench) roles(ctx context.Context, w *world) error {
	f, err := w.newFleet(ctx)
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return err
	}
	var sum float64
	for _, name := range []string{"ingest", "a", "serving"} {
		bytes, err := f.processes[name].peakBytes()
		if err != nil {
			return err
		}
		sum += float64(bytes) / 1e6
	}
	b.add("peak memory, ingest + processors + serving as processes, "+w.kind, "MB", sum, 0, goal{})
	gap, err := b.failover(ctx, f)
	if err != nil {
		return err
	}
	b.add("longest that a read fails when its owner is killed, "+w.kind, "s", gap.Seconds(), 0, goal{most: 0.5})
	return nil
}

const (
	readers      = 4
	afterTheKill = 5 * time.Second
)

// failover kills a node while deals of every partition are read, and returns the longest time from the
// first failed read of a deal to the next that did not fail.
func (b *bench) failover(ctx context.Context, f *fleet) (longest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, afterTheKill+time.Second)
	defer cancel()
	var mu sync.Mutex
	var failed, reads int
	g := new(errgroup.Group)
	for reader := range readers {
		g.Go(func() error {
			since := map[uint64]time.Time{} // of the deals that fail
			for n := uint64(reader); ctx.Err() == nil; n += readers {
				id := 1 + n%64
				at := time.Now()
				_, _, status, err := fetch(ctx, fmt.Sprintf("http://%s/deals/%d", f.addr, id))
				if ctx.Err() != nil {
					break
				}
				mu.Lock()
				reads++
				first, failing := since[id]
				switch ok := err == nil && status == 200; {
				case ok && failing:
					longest = max(longest, time.Since(first))
					delete(since, id)
				case !ok:
					failed++
					if !failing {
						since[id] = at
					}
				}
				mu.Unlock()
				pause(ctx, time.Millisecond)
			}
			if len(since) > 0 {
				return errors.New("reads still fail after the failover")
			}
			return nil
		})
	}
	pause(ctx, time.Second)
	f.processes["b"].kill()
	err = g.Wait()
	b.note("%d reads around the kill, %d failed", reads, failed)
	return longest, err
}
