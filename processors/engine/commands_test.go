package engine

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// toyCommands is an application of commands whose state depends on the order of all that it was given. It
// refuses what is no more than "no", and then touches nothing.
type toyCommands struct{}

func (toyCommands) Tables() []*state.Table { return []*state.Table{toyTable} }

func (toyCommands) ApplyCommand(w state.Writer, c Command) error {
	if string(c.Value) == "no" {
		return nil
	}
	row, err := w.Get(toyTable, c.Key)
	if err != nil {
		return err
	}
	if next := toyNext(row, c.Value); next == nil {
		w.Delete(toyTable, c.Key)
	} else {
		w.Put(toyTable, c.Key, next)
	}
	w.Emit(topics.FamilyDeals, fmt.Appendf(nil, "%d", c.At.Number), append(slices.Clone(c.Value), 0))
	return nil
}

// users send commands, and keep the model of what they come to.
type users struct {
	e      *env
	p      *kafka.Producer
	rng    *rand.Rand
	rows   []map[string]string // by partition
	events [][]string
	last   []topics.BlockRef
}

func newUsers(e *env, seed uint64) *users {
	p, err := kafka.NewProducer(e.kafka, "users", kafka.ProducerOptions{Timeout: 20 * time.Second})
	check(e.t, err)
	e.t.Cleanup(p.Close)
	u := &users{e: e, p: p, rng: rand.New(rand.NewPCG(seed, 2)), events: make([][]string, e.cat.Partitions), last: make([]topics.BlockRef, e.cat.Partitions)}
	for range e.cat.Partitions {
		u.rows = append(u.rows, map[string]string{})
	}
	return u
}

// send sends n commands, waiting for each.
func (u *users) send(n int) {
	t := u.e.t
	t.Helper()
	for range n {
		wallet := common.Address{byte(u.rng.IntN(40))}
		key, value := wallet[:], []byte{byte(u.rng.IntN(200)), 1, 1}
		if u.rng.IntN(8) == 0 {
			value = []byte("no")
		}
		part := topics.Partition(key, u.e.cat.Partitions)
		rec := &kafka.Record{Topic: u.e.cat.Commands(topics.AppNotifier), Partition: part, Key: key, Value: value}
		offset, err := u.p.Send(t.Context(), rec)
		check(t, err)
		u.last[part] = CommandRef(offset, rec.Timestamp)
		if string(value) == "no" {
			continue
		}
		rows := u.rows[part]
		var row []byte
		if old, ok := rows[string(key)]; ok {
			row = []byte(old)
		}
		if next := toyNext(row, value); next == nil {
			delete(rows, string(key))
		} else {
			rows[string(key)] = string(next)
		}
		u.events[part] = append(u.events[part], fmt.Sprint(offset+1))
	}
}

// applied waits until a node has applied all that was sent.
func (u *users) applied(n *runningNode, role topics.HolderRole) {
	u.e.t.Helper()
	polltest.Until(u.e.t, "all commands are applied", func() bool {
		check(u.e.t, n.Stopped())
		at := 0
		for _, w := range n.Watermarks() {
			if w.Role == role && w.At.Number >= u.last[w.Partition].Number {
				at++
			}
		}
		return at == int(u.e.cat.Partitions)
	})
}

// invariant: state, entities and events hold each command once, in order, and final events come at once.
func (u *users) invariant(n *runningNode) {
	u.e.t.Helper()
	for p := range u.e.cat.Partitions {
		v, err := n.View(u.e.t.Context(), p, nil)
		check(u.e.t, err)
		got := map[string]string{}
		check(u.e.t, v.Scan(toyTable, nil, nil, func(k, row []byte) bool { got[string(k)] = string(row); return true }))
		v.Close()
		if !maps.Equal(got, u.rows[p]) {
			u.e.t.Fatalf("partition %d: %d rows, want %d", p, len(got), len(u.rows[p]))
		}
		for _, topic := range []string{u.e.eventTopic(topics.FamilyDeals), u.e.eventTopic(topics.FamilyDeals + ".final")} {
			settles(u.e.t, topic, u.events[p], func() (keys []string) {
				for _, r := range u.e.readAll(topic, p) {
					keys = append(keys, string(r.Key))
				}
				return keys
			})
		}
	}
}

func (e *env) commandConfig(instance string) Config {
	cfg := e.config(instance, vfs.NewMem())
	cfg.AppName = topics.AppNotifier
	return cfg
}

// Whatever point a task dies at, a command that was acknowledged is applied, once, in its order.
func TestCommands(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			e := provision(t, brokertest.Config(brokertest.Start(t, kind), "cmd"), 4)
			seed := testSeed(t)
			u := newUsers(e, seed)
			cr := newCrasher(seed, 15)
			cfg := e.commandConfig("a")
			cfg.crash = cr.crash
			cfg.CommitRecords = 3 // else what comes together is one commit
			n, err := NewCommands(cfg, toyCommands{})
			check(t, err)
			a := e.run(n)
			for range 30 {
				u.send(12)
				u.applied(a, topics.RoleOwner)
			}
			cr.off.Store(true)
			cr.everyPoint(t)
			u.invariant(a)

			// A standby has what was committed, and takes over.
			cfg = e.commandConfig("b")
			cfg.Standbys = 1
			n, err = NewCommands(cfg, toyCommands{})
			check(t, err)
			b := e.run(n)
			polltest.Until(t, "each has half", func() bool { return len(b.Watermarks()) == int(e.cat.Partitions) })
			u.send(50)
			a.stop(t)
			u.applied(b, topics.RoleOwner)
			u.invariant(b)
			check(t, b.Ready(time.Nanosecond)) // nobody asks for anything: that is no fault
		})
	}
}

// A state that was wiped and restored is as good as any, though no command comes: what befalls it later is another fault, and is
// mended.
func TestRestoredWithoutCommands(t *testing.T) {
	e := newEnv(t, 1)
	n, err := NewCommands(e.commandConfig("a"), toyCommands{})
	check(t, err)
	n.replicas[0].wiped = true
	a := e.run(n)
	polltest.Until(t, "the owner idles", func() bool { return n.ends.last.Load() != nil })
	a.stop(t)
	if n.replicas[0].wiped {
		t.Error("the next fault would stop the task")
	}
}

// What cannot be rebuilt says so.
func TestCommandsHaveNoRebuild(t *testing.T) {
	e := newEnv(t, 1)
	cfg := e.commandConfig("a")
	cfg.Rebuild = true
	if _, err := NewCommands(cfg, toyCommands{}); err == nil || !strings.Contains(err.Error(), "rebuild") {
		t.Fatalf("a rebuild of commands: %v", err)
	}
}

// What stopped an application of commands is never to be mended by a rebuild, which it refuses.
func TestRemedies(t *testing.T) {
	for _, err := range []error{ErrBroken, ErrOlder, ErrUnusable, &RebuildError{}} {
		if text := (&Node{commands: toyCommands{}}).remedied(err).Error(); strings.Contains(text, "--rebuild") || !strings.Contains(text, "restore its topics") {
			t.Errorf("commands: %s", text)
		}
		if text := (&Node{}).remedied(err).Error(); !strings.Contains(text, "`lienstream processors --rebuild`") {
			t.Error(text)
		}
	}
	if err := (&Node{}).remedied(ErrApp); !errors.Is(err, ErrApp) || err.Error() != ErrApp.Error() {
		t.Error(err)
	}
}

// The tasks of a node share what commits may hold: a commit that is larger than memtables stays in memory, with its batch,
// until it is flushed, and in a backlog that was so in every partition.
func TestBacklogOfCommands(t *testing.T) {
	e := newEnv(t, 4)
	tx, err := kafka.NewTransactor(e.kafka, "backlog", kafka.TransactorOptions{})
	check(t, err)
	t.Cleanup(tx.Close)
	check(t, tx.Init(t.Context()))
	check(t, tx.Begin())
	const commands, size = 2000, 1000
	last := map[int32]uint64{}
	for i := range commands {
		wallet := common.Address{byte(i), byte(i >> 8)}
		part := topics.Partition(wallet[:], e.cat.Partitions)
		last[part]++
		tx.Produce(t.Context(), &kafka.Record{
			Topic: e.cat.Commands(topics.AppNotifier), Partition: part, Key: wallet[:], Value: append([]byte{1}, make([]byte, size)...),
		})
	}
	check(t, tx.Commit(t.Context()))
	cfg := e.commandConfig("a")
	cfg.CommitBytes = 64 * size
	n, err := NewCommands(cfg, toyCommands{})
	check(t, err)
	node := e.run(n)
	defer node.stop(t)
	polltest.Until(t, "all commands are applied", func() bool {
		at := 0
		for _, w := range node.Watermarks() {
			if w.At.Number >= last[w.Partition] {
				at++
			}
		}
		return at == int(e.cat.Partitions)
	})
	for p := range e.cat.Partitions {
		held, most := 0, 0
		for _, r := range e.readAll(e.cat.Changelog(topics.AppNotifier), p) {
			if held++; string(r.Key) == string(keyProgress) {
				most, held = max(most, held-1), 0
			}
		}
		if share := cfg.CommitBytes / int(e.cat.Partitions) / size; most > share+1 || most == 0 {
			t.Errorf("a commit of partition %d has %d commands of %d bytes, its share are %d", p, most, size, share)
		}
	}
}
