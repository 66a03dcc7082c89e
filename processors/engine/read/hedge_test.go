package read

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/topics"
)

type askerFunc func(ctx context.Context) (*Response, error)

func (f askerFunc) ask(ctx context.Context, _ *nodeRequest) (*Response, error) { return f(ctx) }

// frozen is a process that takes requests and answers none.
func frozen(ctx context.Context) (*Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Whoever holds the same as a frozen owner is asked as soon as it is known, however late that is.
func TestAHolderThatBecomesKnownIsAskedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Application, cfg.Partitions, cfg.Registerer = "toy", 1, prometheus.NewRegistry()
		cfg.Owners = func() (Feed, error) { return nil, ErrUnavailable }
		r, err := NewRouter(cfg)
		if err != nil {
			t.Fatal(err)
		}
		join := func(instance string, role topics.HolderRole, asker askerFunc) {
			o := topics.Owner{Instance: instance, Addr: instance, Role: role, Incarnation: 1, State: topics.StateRunning, At: markAt(0, 1).At}
			r.nodes.announced(o, false, func(string) *node { return &node{asker: asker, stop: func() {}} })
		}
		join("owner", topics.RoleOwner, frozen)
		const late = 3 * hedgeAfter
		time.AfterFunc(late, func() {
			join("standby", topics.RoleStandby, func(context.Context) (*Response, error) { return asOf(moment(1, 0), 1), nil })
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err = r.Read(ctx, Request{Operation: toy(nil).Operations[0], Query: &page{Limit: 1}})
		if took := time.Since(began); err != nil || took > late+hedgeAgain {
			t.Errorf("%v after %v, want an answer %v after the standby became known", err, took, hedgeAgain)
		}
	})
}

// A read that comes before anybody holds its partition is answered as soon as somebody does: not at the next of ever
// longer pauses, as when a node starts anew.
func TestAReadWaitsForAHolder(t *testing.T) {
	for _, late := range []time.Duration{130 * time.Millisecond, 400 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Application, cfg.Partitions, cfg.Registerer = "toy", 1, prometheus.NewRegistry()
			cfg.Owners = func() (Feed, error) { return nil, ErrUnavailable }
			r, err := NewRouter(cfg)
			if err != nil {
				t.Fatal(err)
			}
			read := Request{Operation: toy(nil).Operations[0], Query: &page{Limit: 1}}
			began := time.Now()
			if _, err := r.Read(t.Context(), read); !errors.Is(err, ErrUnavailable) || time.Since(began) > cfg.Patience {
				t.Errorf("nobody comes: %v after %v, want ErrUnavailable within %v", err, time.Since(began), cfg.Patience)
			}
			time.AfterFunc(late, func() {
				o := topics.Owner{Instance: "a", Addr: "a", Role: topics.RoleOwner, Incarnation: 1, State: topics.StateRunning, At: markAt(0, 1).At}
				r.nodes.announced(o, false, func(string) *node {
					return &node{asker: askerFunc(func(context.Context) (*Response, error) { return asOf(moment(1, 0), 1), nil }), stop: func() {}}
				})
			})
			began = time.Now()
			if _, err := r.Read(t.Context(), read); err != nil || time.Since(began) > late+frontierAge {
				t.Errorf("%v after %v, want an answer after %v", err, time.Since(began), late)
			}
		})
	}
}

// What a node tells of itself is newer than what the owners topic has of it: one that takes a partition over answers
// reads of it meanwhile.
func TestAHolderThatRestoresIsStillAsked(t *testing.T) {
	n := newNodes(2, nil, Application{})
	o := topics.Owner{Instance: "a", Addr: "a", Role: topics.RoleStandby, Incarnation: 1, State: topics.StateRunning, At: markAt(0, 1).At}
	h := n.announced(o, false, func(string) *node { return &node{stop: func() {}} })
	n.told(h, []Watermark{markAt(0, 1), markAt(1, 1)})
	o.State = topics.StateRestoring
	n.announced(o, false, nil)
	n.announced(topics.Owner{Instance: "a", Partition: 1}, true, nil)
	if marks, ok := n.watermarks(); !ok {
		t.Errorf("of two partitions that a node tells of, these are known: %v", marks)
	}
	n.told(h, []Watermark{markAt(0, 1)})
	if _, ok := n.watermarks(); ok {
		t.Error("a partition has a holder that does not tell of it")
	}
	n.announced(topics.Owner{Instance: "a", Partition: 2}, true, nil)
	if n.count() != 0 {
		t.Error("a node that left is known")
	}
}

// An incarnation that nobody has claimed for long counts no more: a changelog that was created anew begins with low ones,
// and its owners are asked again. What was shown before is not gone back behind.
func TestAnIncarnationThatIsGoneIsForgotten(t *testing.T) {
	n := newNodes(1, nil, Application{})
	clock := time.Now()
	n.now = func() time.Time { return clock }
	o := topics.Owner{Instance: "a", Addr: "a", Role: topics.RoleOwner, Incarnation: 7, State: topics.StateRunning, At: moment(9, 0).Block}
	h := n.announced(o, false, func(string) *node { return &node{stop: func() {}} })
	n.shown(moment(9, 0), []int32{0})
	anew := Watermark{Partition: 0, Role: topics.RoleOwner, Incarnation: 1, At: moment(10, 0).Block}
	for passed := time.Duration(0); passed < forgottenFor; passed += time.Second {
		n.told(h, []Watermark{anew})
		n.forget()
		if _, ok := n.watermarks(); ok {
			t.Fatalf("an older incarnation counts after %v", passed)
		}
		clock = clock.Add(time.Second)
	}
	n.forget()
	n.told(h, []Watermark{anew})
	if marks, ok := n.watermarks(); !ok {
		t.Errorf("nobody holds the partition: %v", marks)
	}
	asked := call{node: h, partitions: []int32{0}}
	before, after := asOf(moment(8, 0), 1), asOf(moment(10, 0), 1)
	if reason, _ := n.accept(asked, before, n.floorOf(asked.partitions)); reason != refusedBehind {
		t.Errorf("an answer of before what was shown: %q", reason)
	}
	if reason, _ := n.accept(asked, after, n.floorOf(asked.partitions)); reason != "" {
		t.Errorf("an answer is refused: %q", reason)
	}
}
