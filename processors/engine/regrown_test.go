package engine

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// restartable is an environment on the files of a broker that can be stopped, and a chain that goes on with another one's.
func restartable(t *testing.T, dir string, former *chain) (*env, *chain, *broker.Broker) {
	t.Helper()
	return restartableAt(t, dir, 0, former)
}

func restartableAt(t *testing.T, dir string, port int, former *chain) (*env, *chain, *broker.Broker) {
	t.Helper()
	b, err := broker.Open(broker.Config{Dir: dir, Port: port})
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	e := provision(t, brokertest.Config(b.Addrs(), "t"), 1)
	c := newChain(t, e.kafka, e.cat, 5)
	if former != nil {
		c.blocks, c.salt, c.sent, c.rng = former.blocks, former.salt, former.sent, former.rng
	}
	return e, c, b
}

// lostEnd makes a changelog that has lost its end, which the disk of a node has. The raw topic is whole.
func lostEnd(t *testing.T) (*env, *chain, *vfs.MemFS) {
	t.Helper()
	dir, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	disk := vfs.NewMem()
	run := func(former *chain, disk *vfs.MemFS, blocks int) *chain {
		e, c, b := restartable(t, dir, former)
		c.keys, c.logs = 200, 12
		n := e.start(e.config("a", disk))
		for range blocks {
			c.add(1)
			e.caughtUp(c, n)
		}
		e.committed(c, n)
		n.stop(t)
		check(t, b.Close())
		return c
	}
	c := run(nil, disk, 5)
	logs, err := filepath.Glob(filepath.Join(dir, "log", "partitions", "*cl."+topics.AppMarket+"*"))
	check(t, err)
	if len(logs) != 1 {
		t.Fatal(logs)
	}
	check(t, os.CopyFS(kept, os.DirFS(logs[0])))
	c = run(c, vfs.NewMem(), 1)
	c = run(c, disk, 3)
	check(t, os.RemoveAll(logs[0]))
	check(t, os.CopyFS(logs[0], os.DirFS(kept)))
	e, c, _ := restartable(t, dir, c)
	c.keys, c.logs = 3, 6 // what the other node lacks is not written again soon
	return e, c, disk
}

// A changelog that lost its end and has grown again beyond it, whoever wrote it, is not carried on over by a node that has come as far
// before: its state is restored.
func TestChangelogGrownAgain(t *testing.T) {
	for name, rebuild := range map[string]bool{"by the next owner": false, "by a rebuild": true} {
		for _, role := range []topics.HolderRole{topics.RoleOwner, topics.RoleStandby} {
			t.Run(name+", "+string(role), func(t *testing.T) {
				e, c, disk := lostEnd(t)
				cfg := e.config("b", vfs.NewMem())
				cfg.Rebuild = rebuild
				b := e.holdAll(cfg, topics.RoleOwner)
				for range 30 {
					c.add(1)
					e.caughtUp(c, b)
				}
				e.committed(c, b)
				e.invariantState(c, b)
				former := e.config("a", disk)
				a := e.holdAll(former, role)
				c.add(1)
				if role == topics.RoleStandby {
					e.committed(c, b)
					polltest.Until(t, "the standby follows", e.at(c, a, role))
				} else {
					e.caughtUp(c, a)
				}
				e.invariantState(c, a)
				if total(t, former.Registerer, "lienstream_processors_restarts_total", "changelog") == 0 {
					t.Fatal("it carried on")
				}
			})
		}
	}
}

// A changelog that loses its end while its owner lives: the owner stops, and does not go on with a changelog that lacks what it
// has committed.
func TestChangelogCutUnderItsOwner(t *testing.T) {
	dir, kept := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	check(t, l.Close())
	logs := filepath.Join(dir, "log", "partitions", "*cl."+topics.AppMarket+"*")
	only := func() string {
		t.Helper()
		found, err := filepath.Glob(logs)
		check(t, err)
		if len(found) != 1 {
			t.Fatal(found)
		}
		return found[0]
	}
	e, c, b := restartableAt(t, dir, port, nil)
	disk := vfs.NewMem()
	n := e.holdAll(e.config("a", disk), topics.RoleOwner)
	c.add(3)
	e.caughtUp(c, n)
	e.committed(c, n)
	check(t, b.Close())
	check(t, os.CopyFS(kept, os.DirFS(only())))
	e, c, b = restartableAt(t, dir, port, c)
	for range 20 {
		c.add(1)
		e.caughtUp(c, n)
	}
	e.committed(c, n)
	check(t, b.Close())
	cut := only()
	check(t, os.RemoveAll(cut))
	check(t, os.CopyFS(cut, os.DirFS(kept)))
	e, c, _ = restartableAt(t, dir, port, c)
	c.add(1)
	polltest.Until(t, "the owner stops", func() bool { return n.Stopped() != nil })
	if err := n.Stopped(); !errors.Is(err, ErrBroken) {
		t.Fatal(err)
	}
	// Its last commit is there, and nobody takes it for one on top of the rest: neither the owner when it starts again, nor another one.
	n.stop(t)
	for name, disk := range map[string]*vfs.MemFS{"a": disk, "b": vfs.NewMem()} {
		cfg := e.config(name, disk)
		cfg.Registerer = prometheus.NewRegistry()
		again := e.holdAll(cfg, topics.RoleOwner)
		polltest.Until(t, "it stops: "+name, func() bool { return again.Stopped() != nil })
		if err := again.Stopped(); !errors.Is(err, ErrUnusable) && !errors.Is(err, ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
		again.stop(t)
	}
	cfg := e.config("c", vfs.NewMem())
	cfg.Rebuild = true
	rebuilt := e.holdAll(cfg, topics.RoleOwner)
	c.add(1)
	e.caughtUp(c, rebuilt)
	e.invariantState(c, rebuilt)
}

// cuttable is a broker whose logs are changed while it is away. It comes back at the same address.
type cuttable struct {
	addrs []string
	logs  string       // where the partitions' are
	away  func(func()) // and then it leads in a new epoch
}

func cuttableBroker(t *testing.T, kind string) cuttable {
	t.Helper()
	if kind == "apache" {
		a := brokertest.ApacheWith(t, broker.ApacheConfig{})
		return cuttable{a.Addrs(), a.LogDir(), func(change func()) {
			check(t, a.Stop(t.Context()))
			change()
			check(t, a.Restart(t.Context()))
		}}
	}
	cfg := broker.Config{Dir: t.TempDir()}
	b, err := broker.Open(cfg)
	check(t, err)
	t.Cleanup(func() { check(t, b.Close()) })
	_, port, err := net.SplitHostPort(b.Addrs()[0])
	check(t, err)
	cfg.Port, err = strconv.Atoi(port)
	check(t, err)
	terms := 0
	return cuttable{b.Addrs(), filepath.Join(cfg.Dir, "log", "partitions"), func(change func()) {
		check(t, b.Close())
		change()
		b, err = broker.Open(cfg)
		check(t, err)
		terms++
		for range terms { // this broker keeps the epoch with the log
			check(t, b.Move(topics.Catalogue{Prefix: "t", ChainID: 1}.Changelog(topics.AppMarket), 0, 0))
		}
	}}
}

// A changelog that lost its end and has grown past where a standby was, whose former owner wrote nothing beyond that: neither an
// owner nor the progress that follows tells, but the epoch of the leader does.
func TestChangelogGrownPastTheState(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			b := cuttableBroker(t, kind)
			e := provision(t, brokertest.Config(b.addrs, "t"), 1)
			changelog := e.cat.Changelog(topics.AppMarket)
			c := newChain(t, e.kafka, e.cat, 5)
			c.keys, c.logs = 3, 6
			own := func(instance string, blocks int) (end int64) {
				t.Helper()
				n := e.holdAll(e.config(instance, vfs.NewMem()), topics.RoleOwner)
				for range blocks {
					c.add(1)
					e.caughtUp(c, n)
					e.committed(c, n)
				}
				e.invariantState(c, n)
				n.stop(t)
				all := e.readAll(changelog, 0)
				return all[len(all)-1].Offset + 1
			}
			away := func(change func()) {
				t.Helper()
				b.away(change)
				former := c
				c = newChain(t, e.kafka, e.cat, 5)
				c.keys, c.logs = former.keys, former.logs
				c.blocks, c.salt, c.sent, c.rng = former.blocks, former.salt, former.sent, former.rng
			}
			kept := filepath.Join(t.TempDir(), "kept")
			var log string
			own("a", 3)
			away(func() {
				found, err := filepath.Glob(filepath.Join(b.logs, "*"+strings.ReplaceAll(changelog, ".", "?")+"*"))
				if err != nil || len(found) != 1 {
					t.Fatal(found, err)
				}
				log = found[0]
				check(t, os.CopyFS(kept, os.DirFS(log)))
			})
			e.aborted(changelog, 200)
			end, disk := own("b", 3), vfs.NewMem()
			s := e.holdAll(e.config("s", disk), topics.RoleStandby)
			polltest.Until(t, "the standby has all", e.at(c, s, topics.RoleStandby))
			s.stop(t)
			away(func() {
				check(t, os.RemoveAll(log))
				check(t, os.CopyFS(log, os.DirFS(kept)))
			})
			grown := own("d", 1)
			if grown >= end {
				t.Fatalf("grown to %d, and the standby is at %d", grown, end)
			}
			e.aborted(changelog, end-grown)
			own("f", 1)
			former := e.config("s", disk)
			s = e.holdAll(former, topics.RoleStandby)
			polltest.Until(t, "the standby has all", e.at(c, s, topics.RoleStandby))
			e.invariantState(c, s)
			if total(t, former.Registerer, "lienstream_processors_restarts_total", "changelog") == 0 {
				t.Fatal("it carried on")
			}
		})
	}
}

// aborted writes records that nobody reads.
func (e *env) aborted(topic string, records int64) {
	e.t.Helper()
	for range 2 { // the second one aborts what the first one has begun
		tx, err := kafka.NewTransactor(e.kafka, "aborted", kafka.TransactorOptions{})
		check(e.t, err)
		defer tx.Close()
		check(e.t, tx.Init(e.t.Context()))
		if records > 0 {
			check(e.t, tx.Begin())
			for range records {
				tx.Produce(e.t.Context(), &kafka.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: []byte("v")})
			}
			if !tx.Flush(e.t.Context()) {
				e.t.Fatal("not flushed")
			}
			tx.Kill()
		}
		records = 0
	}
}
