package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// lateHolder is how old what a holder says of itself may be: it says so every second.
const lateHolder = 3 * time.Second

// leavers are the faults by which a host loses what it owns.
var leavers = []string{"kill", "stop", "lose the disk", "freeze", "cut off from the brokers", zombie.name}

// holder is what a host has said of a partition.
type holder struct {
	role topics.HolderRole
	life int       // of the host
	warm bool      // it has answered for the partition in that life
	said time.Time // zero: it holds it no more
}

// reached is how far anybody has said that a partition is.
type reached struct {
	at   read.Point
	said time.Time
}

// takeovers judges who takes over what an owner has left, where one thing at a time is broken: a host that has followed the
// partition, if there is one. Another would have to restore it, and owns it meanwhile.
//
// It judges, too, when a new owner says that it runs. From then on nobody else is asked, so it must have caught up: it is no
// further back than anybody had said of the partition.
type takeovers struct {
	*run
	owner   map[int32]string            // by partition
	held    map[int32]map[string]holder // by partition and host
	newest  map[int32]int64             // by partition: the incarnation of the last owner that ran
	reached map[int32][]reached         // by partition, ascending: the furthest, and what it was until lateHolder ago
}

// watchTakeovers reads what processors announce, until ctx is done.
func (r *run) watchTakeovers(ctx context.Context) {
	read, err := kafka.NewReader(r.kafka(), r.cat.OwnersTopic(), 0, kafka.Start, kafka.ReaderOptions{})
	if err != nil {
		r.found("owners cannot be read", "%v", err)
		return
	}
	defer read.Close()
	w := &takeovers{r, map[int32]string{}, map[int32]map[string]holder{}, map[int32]int64{}, map[int32][]reached{}}
	for records := []*kafka.Record(nil); ; {
		if records, err = read.Poll(ctx, records); err != nil {
			if ctx.Err() == nil {
				r.found("owners cannot be read", "%v", err)
			}
			return
		}
		for _, rec := range records {
			switch o, gone, err := topics.DecodeOwner(rec.Key, rec.Value); {
			case err != nil:
				r.found("owners cannot be read", "%v", err)
			case o.Application == topics.AppMarket && o.Partition < r.partitions:
				w.take(o, gone)
			}
		}
	}
}

func (w *takeovers) take(o topics.Owner, gone bool) {
	p := o.Partition
	if w.held[p] == nil {
		w.held[p] = map[string]holder{}
	}
	if gone {
		delete(w.held[p], o.Instance)
		return
	}
	before := w.held[p][o.Instance]
	now := holder{role: o.Role, life: w.life(o.Instance), said: time.Now()}
	now.warm = before.warm && before.life == now.life
	if o.Role == topics.RoleOwner && w.owner[p] != o.Instance {
		if !now.warm {
			w.judge(p, o.Instance)
		}
		w.owner[p] = o.Instance
	}
	if o.State == topics.StateRunning {
		now.warm = true
		w.runs(o)
	}
	w.held[p][o.Instance] = now
}

// runs takes what a holder that can be read says of itself.
func (w *takeovers) runs(o topics.Owner) {
	p, at := o.Partition, read.Point{Reverts: o.Reverts, Number: o.At.Number}
	all := w.reached[p]
	for len(all) > 1 && time.Since(all[1].said) >= lateHolder {
		all = all[1:]
	}
	if o.Role == topics.RoleOwner && o.Incarnation > w.newest[p] {
		w.newest[p] = o.Incarnation
		w.rmu.Lock()
		judged := w.settled && w.flowing(time.Now()) && !w.busy[o.Instance]
		w.rmu.Unlock()
		if judged && len(all) > 0 && time.Since(all[0].said) >= lateHolder && at.Before(all[0].at) {
			w.found("a takeover goes back", "partition %d runs on %s as of block %d after %d reverts, and was at %d after %d %v before",
				p, o.Instance, at.Number, at.Reverts, all[0].at.Number, all[0].at.Reverts, time.Since(all[0].said))
		}
	}
	if n := len(all); n == 0 || all[n-1].at.Before(at) {
		all = append(all, reached{at, time.Now()})
	}
	w.reached[p] = all
}

// judge judges a host that owns a partition which it never answered for. At the very beginning it may have followed it, and not said
// so yet.
func (w *takeovers) judge(p int32, cold string) {
	from := w.owner[p]
	w.rmu.Lock()
	left := time.Since(w.began) > lateHolder && w.opt.alone && w.busy[from] && slices.Contains(leavers, w.ails[from])
	var warm []string
	for host, h := range w.held[p] {
		if host != from && h.warm && h.role == topics.RoleStandby && h.life == w.life(host) && time.Since(h.said) < lateHolder && w.calm(host, time.Now()) {
			warm = append(warm, host)
		}
	}
	w.rmu.Unlock()
	if left && len(warm) > 0 {
		w.found("a takeover is cold", "partition %d of %s, which suffers %s, goes to %s, and %v had followed it", p, from, w.ails[from], cold, warm)
	}
}
