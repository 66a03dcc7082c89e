package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// lateHolder is how old what a holder says of itself may be: it says so every second.
const lateHolder = 3 * time.Second

// leavers are the faults by which a host loses what it owns.
var leavers = []string{"kill", "stop", "lose the disk", "freeze", "cut off from the brokers"}

// holder is what a host has said of a partition.
type holder struct {
	role topics.HolderRole
	life int       // of the host
	warm bool      // it has answered for the partition in that life
	said time.Time // zero: it holds it no more
}

// takeovers judges who takes over what an owner has left, where one thing at a time is broken: a host that has followed the
// partition, if there is one. Another would have to restore it, and owns it meanwhile.
type takeovers struct {
	*run
	owner map[int32]string            // by partition
	held  map[int32]map[string]holder // by partition and host
}

// watchTakeovers reads what processors announce, until ctx is done.
func (r *run) watchTakeovers(ctx context.Context) {
	read, err := kafka.NewReader(r.kafka(), r.cat.OwnersTopic(), 0, kafka.Start, kafka.ReaderOptions{})
	if err != nil {
		r.found("owners cannot be read", "%v", err)
		return
	}
	defer read.Close()
	w := &takeovers{r, map[int32]string{}, map[int32]map[string]holder{}}
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
	now.warm = now.warm || o.State == topics.StateRunning
	w.held[p][o.Instance] = now
}

// judge judges a host that owns a partition which it never answered for.
func (w *takeovers) judge(p int32, cold string) {
	from := w.owner[p]
	w.rmu.Lock()
	left := w.opt.alone && w.busy[from] && slices.Contains(leavers, w.ails[from])
	calm := func(host string) bool { return !w.busy[host] && time.Since(w.healed[host]) > warmAfter }
	var warm []string
	for host, h := range w.held[p] {
		if host != from && h.warm && h.role == topics.RoleStandby && h.life == w.life(host) && time.Since(h.said) < lateHolder && calm(host) {
			warm = append(warm, host)
		}
	}
	w.rmu.Unlock()
	if left && len(warm) > 0 {
		w.found("a takeover is cold", "partition %d of %s, which suffers %s, goes to %s, and %v had followed it", p, from, w.ails[from], cold, warm)
	}
}
