// Package status reports the state of the pipeline: how far the ingester is, and who holds each
// partition and how far it is. It only reads topics, so it works wherever the brokers are reachable. It must
// not ask a node.
package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Status is the state of the pipeline, as read from the topics.
type Status struct {
	Now        time.Time
	Ingest     *topics.BlockEnd // the last barrier; nil: there is none
	IngestAt   time.Time        // when it was written
	Unproved   []string         // what the ingester cannot verify, for lack of an endpoint
	Partitions []Partition      // ascending, all of them
}

// Partition is who holds a partition.
type Partition struct {
	ID       int32
	Owner    *topics.Owner // nil: there is none
	Standbys []topics.Owner
}

// recent is the maximum age of an announcement; nodes announce every second.
const recent = 10 * time.Second

// Read reads the ends of the raw topic and the owners topic.
func Read(ctx context.Context, cfg kafka.Config, cat topics.Catalogue) (*Status, error) {
	s := &Status{Now: time.Now()}
	err := kafka.ReadBack(ctx, cfg, cat.Raw(), 0, 0, func(r *kafka.Record) bool {
		if len(r.Key) > 0 {
			return true // a log
		}
		raw, _ := topics.DecodeRaw(r.Value)
		end, ok := raw.(*topics.BlockEnd)
		if ok {
			s.Ingest, s.IngestAt = end, r.Timestamp
			for _, h := range r.Headers {
				if h.Key == topics.UnprovedHeader {
					s.Unproved = strings.Split(string(h.Value), "\n")
				}
			}
		}
		return !ok
	})
	if err != nil {
		return nil, err
	}
	var told []topics.Owner
	seen := map[string]bool{} // read backwards, the first record of a key is the latest
	err = kafka.ReadBack(ctx, cfg, cat.OwnersTopic(), 0, 0, func(r *kafka.Record) bool {
		if s.Now.Sub(r.Timestamp) > recent {
			return false
		}
		o, gone, err := topics.DecodeOwner(r.Key, r.Value)
		if err == nil && !seen[string(r.Key)] && !gone {
			told = append(told, o)
		}
		seen[string(r.Key)] = true
		return true
	})
	if err != nil {
		return nil, err
	}
	s.Partitions = assign(told, cat.Partitions)
	return s, nil
}

// assign sorts the market's announcements by partition. Of two announced owners the later incarnation is the owner;
// the other has not noticed yet.
func assign(told []topics.Owner, partitions int32) []Partition {
	all := make([]Partition, partitions)
	for p := range all {
		all[p].ID = int32(p)
	}
	for _, o := range told {
		if o.Application != topics.AppMarket || o.Partition < 0 || o.Partition >= partitions {
			continue // of another application, or the node's record of itself
		}
		p := &all[o.Partition]
		switch {
		case o.Role != topics.RoleOwner:
			p.Standbys = append(p.Standbys, o)
		case p.Owner == nil || o.Incarnation > p.Owner.Incarnation:
			p.Owner = &o
		}
	}
	for p := range all {
		slices.SortFunc(all[p].Standbys, func(a, b topics.Owner) int { return cmp.Compare(a.Instance, b.Instance) })
	}
	return all
}

// Write prints the status as a table.
func (s *Status) Write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var head uint64
	if s.Ingest == nil {
		_, _ = fmt.Fprintln(table, "ingest: the raw topic has no barrier yet; the ingester's log says what it waits for")
	} else {
		head = max(s.Ingest.Head, s.Ingest.Block.Number)
		_, _ = fmt.Fprintln(table, "INGEST\tHEAD\tPUBLISHED\tFINALIZED\tAGE")
		_, _ = fmt.Fprintf(table, "\t%d\t%d\t%d\t%s\n", head, s.Ingest.Block.Number, s.Ingest.Finalized, age(s.Now.Sub(s.IngestAt)))
	}
	_, _ = fmt.Fprintln(table, "\nPARTITION\tOWNER\tSTATE\tBLOCK\tLAG\tSTANDBYS")
	for _, p := range s.Partitions {
		owner := topics.Owner{Instance: "-", State: "-"}
		block, lag := "-", "-"
		if p.Owner != nil {
			owner = *p.Owner
			block = fmt.Sprint(owner.At.Number)
			lag = fmt.Sprint(max(head, owner.At.Number) - owner.At.Number)
		}
		standbys := make([]string, 0, len(p.Standbys))
		for _, o := range p.Standbys {
			about := fmt.Sprintf("%s at %d", o.Instance, o.At.Number)
			if o.State != topics.StateRunning {
				about = o.Instance + " " + o.State
			}
			standbys = append(standbys, about)
		}
		if len(standbys) == 0 {
			standbys = []string{"-"}
		}
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", p.ID, owner.Instance, owner.State, block, lag, strings.Join(standbys, ", "))
	}
	if err := table.Flush(); err != nil { // the table keeps the first error
		return err
	}
	for _, lack := range s.Unproved {
		if _, err := fmt.Fprintf(w, "\nnot verified: %s\n", lack); err != nil {
			return err
		}
	}
	for _, p := range s.Partitions {
		if err := p.writeFaults(w); err != nil {
			return err
		}
	}
	return nil
}

// writeFaults tells what stopped the holders of a partition, and with it what a person is to do.
func (p Partition) writeFaults(w io.Writer) error {
	holders := p.Standbys
	if p.Owner != nil {
		holders = append([]topics.Owner{*p.Owner}, holders...)
	}
	for _, o := range holders {
		if o.Fault == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\npartition %d is stopped on %s: %s\n", p.ID, o.Instance, o.Fault); err != nil {
			return err
		}
	}
	return nil
}

func age(d time.Duration) string { return max(d, 0).Round(10 * time.Millisecond).String() }

// ErrUnowned means that a partition has no owner that tells of itself.
var ErrUnowned = errors.New("partitions without an owner")

// Print is `lienstream status`. ErrUnowned, after the table, where partitions have no owner: a script can
// go by that.
func Print(ctx context.Context, cfg kafka.Config, cat topics.Catalogue, w io.Writer) error {
	s, err := Read(ctx, cfg, cat)
	if err != nil {
		return err
	}
	if err := s.Write(w); err != nil {
		return err
	}
	var without []string
	for _, p := range s.Partitions {
		if p.Owner == nil {
			without = append(without, fmt.Sprint(p.ID))
		}
	}
	if len(without) > 0 {
		return fmt.Errorf("%w: %s", ErrUnowned, strings.Join(without, ", "))
	}
	return nil
}
