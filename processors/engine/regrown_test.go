package engine

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
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
	n := e.holdAll(e.config("a", vfs.NewMem()), topics.RoleOwner)
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
	_, c, _ = restartableAt(t, dir, port, c)
	c.add(1)
	polltest.Until(t, "the owner stops", func() bool { return n.Stopped() != nil })
	if err := n.Stopped(); !errors.Is(err, ErrBroken) {
		t.Fatal(err)
	}
}
