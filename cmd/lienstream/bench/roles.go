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

// fleet is every role as a process of its own.
type fleet struct {
	w         *world
	name      string
	addr      string   // of the indexer
	args      []string // of every role
	processes map[string]*process
	ops       map[string]string
	owner     string // a node of the processors that owns partitions
	resident  int64  // peak during the backfill
}

// newFleet starts the roles on topics of their own and waits until everything is served.
func (w *world) newFleet(ctx context.Context) (*fleet, error) {
	p, err := w.provisioned()
	if err != nil {
		return nil, err
	}
	f := &fleet{w: w, name: p.name, addr: address(), args: append(p.topics, w.chain.flags(false)...), processes: map[string]*process{}, ops: map[string]string{}}
	err = errors.Join(f.start("ingest", "ingest"), f.processor("a"), f.start("serving", "serving", "--services=indexer", "--indexer-addr="+f.addr))
	if err != nil {
		return f, err
	}
	atHead := indexed(f.addr, w.chain.head)
	return f, until(ctx, f.processes["serving"], func(ctx context.Context) error {
		return errors.Join(f.weigh(), atHead(ctx))
	})
}

func (f *fleet) processor(name string) error {
	return f.start(name, "processors", "--applications=market", "--instance="+name, "--data-dir="+filepath.Join(f.w.cfg.dir, f.name+"-"+name))
}

func (f *fleet) start(name string, args ...string) error {
	query := address()
	f.ops[name] = address()
	args = append(append(args, "--ops-addr="+f.ops[name], "--query-addr="+query, "--advertise="+query), f.args...)
	p, err := start(f.w.cfg, f.name+"-"+name, args...)
	if err == nil {
		f.processes[name] = p
	}
	return err
}

// weigh measures the memory of the processes now. The pages of the binary, which they share, count once.
func (f *fleet) weigh() error {
	var own, shared int64
	for _, p := range f.processes {
		anonymous, err1 := p.status("RssAnon")
		ofFiles, err2 := p.status("RssFile")
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		own += anonymous
		shared = max(shared, ofFiles)
	}
	f.resident = max(f.resident, own+shared)
	return nil
}

func (f *fleet) close() {
	for _, p := range f.processes {
		p.kill()
	}
}

// followed reports whether every partition has an owner and a standby, and as many nodes as possible own some. It keeps
// the name of one.
func (f *fleet) followed(ctx context.Context) error {
	held, owners := 0, 0
	for _, node := range []string{"a", "b"} {
		text, _, _, err := fetch(ctx, "http://"+f.ops[node]+"/metrics")
		if err != nil {
			return err
		}
		owns := false
		for line := range strings.Lines(string(text)) { // …held{application="market",partition="3",role="owner"} 1
			if !strings.HasPrefix(line, `lienstream_processors_held{application="market"`) || !strings.HasSuffix(line, " 1\n") {
				continue
			}
			held++
			owns = owns || strings.Contains(line, `role="owner"`)
		}
		if owns {
			owners++
			f.owner = node
		}
	}
	if want := min(2, f.w.cfg.partitions); owners != want {
		return fmt.Errorf("%d nodes own partitions, not %d", owners, want)
	}
	if want := 2 * f.w.cfg.partitions; held != want {
		return fmt.Errorf("%d partitions are held by an owner or a standby, not %d", held, want)
	}
	return nil
}

// roles measures the roles as processes of their own: memory after a backfill, processor time at the tip, and how long
// reads fail when a node of the processors is killed.
func (b *bench) roles(ctx context.Context, w *world) error {
	f, err := w.newFleet(ctx)
	if f != nil {
		defer f.close()
	}
	if err != nil {
		return err
	}
	b.add("peak memory, ingest + processors + serving as processes, "+w.kind, "MB", float64(f.resident)/1e6, 0, goal{most: 300})
	if err := f.processor("b"); err != nil {
		return err
	}
	if err := until(ctx, f.processes["a"], f.followed); err != nil {
		return err
	}
	gap, err := b.failover(ctx, f)
	if err != nil {
		return err
	}
	b.add("longest time without an answer for a deal after its owner is killed, "+w.kind, "s", gap.Seconds(), 0, goal{most: 0.5})
	return nil
}

const (
	readers      = 4
	afterTheKill = 5 * time.Second
)

// failover kills a node while blocks land and deals of every partition are read. It returns the longest time that a
// deal was not answered: from the start of the first of its failed reads to the end of the next good one.
func (b *bench) failover(ctx context.Context, f *fleet) (longest time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second+afterTheKill)
	defer cancel()
	var mu sync.Mutex
	var failed, reads int
	g := new(errgroup.Group)
	g.Go(func() error { return b.blocks(ctx, 100*time.Millisecond, 20) })
	for reader := range readers {
		g.Go(func() error {
			since := map[uint64]time.Time{} // of the deals that fail
			for n := uint64(reader); ctx.Err() == nil; n += readers {
				id, began := 1+n%64, time.Now()
				_, _, status, err := fetch(context.WithoutCancel(ctx), fmt.Sprintf("http://%s/deals/%d", f.addr, id))
				ok := err == nil && status == 200
				first, failing := since[id]
				if !failing {
					first = began
				}
				mu.Lock()
				reads++
				if ok {
					longest = max(longest, time.Since(first))
					delete(since, id)
				} else {
					failed++
					since[id] = first
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
	f.processes[f.owner].kill()
	err = g.Wait()
	b.note("%d reads around the kill, %d failed", reads, failed)
	return longest, err
}
