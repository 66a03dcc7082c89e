// Package status reports the state of the pipeline: how far the ingester is, and of each application who holds
// each partition and how far it is. It only reads topics, so it works wherever the brokers are reachable. It must
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
	Now          time.Time
	Ingest       *topics.BlockEnd // the last barrier; nil: there is none
	IngestAt     time.Time        // when it was written
	Unproved     []string         // what the ingester cannot verify, for lack of an endpoint
	Applications []Application
}

// Application is who holds the partitions of an application.
type Application struct {
	Name       string
	Commands   bool        // its input is a command topic, so positions are offsets; otherwise they are blocks
	Partitions []Partition // ascending, all of them
}

// Partition is who holds a partition.
type Partition struct {
	ID       int32
	Owner    *topics.Owner // nil: there is none
	Standbys []topics.Owner
}

// Read reads the ends of the raw topic and the owners topic. It reports the applications that are expected, and
// after them all others that a node announces.
func Read(ctx context.Context, cfg kafka.Config, cat topics.Catalogue, expected []string) (*Status, error) {
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
		if s.Now.Sub(r.Timestamp) > topics.OwnerAlive {
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
	for _, name := range applications(expected, told) {
		_, commands := cat.Find(topics.KindCommand, name)
		s.Applications = append(s.Applications, Application{Name: name, Commands: commands, Partitions: assign(name, told, cat.Partitions)})
	}
	return s, nil
}

// applications are the names of the expected applications, and after them of the others that announced themselves.
func applications(expected []string, told []topics.Owner) []string {
	var others []string
	for _, o := range told {
		if !slices.Contains(expected, o.Application) {
			others = append(others, o.Application)
		}
	}
	slices.Sort(others)
	return slices.Concat(expected, slices.Compact(others))
}

// assign sorts an application's announcements by partition. Of two announced owners the later incarnation is the owner;
// the other has not noticed yet.
func assign(app string, told []topics.Owner, partitions int32) []Partition {
	all := make([]Partition, partitions)
	for p := range all {
		all[p].ID = int32(p)
	}
	for _, o := range told {
		if o.Application != app || o.Partition < 0 || o.Partition >= partitions {
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

// Write prints the status as tables.
func (s *Status) Write(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var head uint64
	if s.Ingest == nil {
		_, _ = fmt.Fprintln(table, "ingest: the raw topic has no barrier yet; the ingester's log says what it waits for")
	} else {
		head = max(s.Ingest.Head, s.Ingest.Block.Number)
		_, _ = fmt.Fprintln(table, "\tHEAD\tPUBLISHED\tFINALIZED\tAGE")
		_, _ = fmt.Fprintf(table, "ingest\t%d\t%d\t%d\t%s\n", head, s.Ingest.Block.Number, s.Ingest.Finalized, age(s.Now.Sub(s.IngestAt)))
	}
	for _, a := range s.Applications {
		a.write(table, head)
	}
	if err := table.Flush(); err != nil { // the table keeps the first error
		return err
	}
	for _, lack := range s.Unproved {
		if _, err := fmt.Fprintf(w, "\nnot verified: %s\n", lack); err != nil {
			return err
		}
	}
	for _, a := range s.Applications {
		for _, p := range a.Partitions {
			if err := p.writeFaults(w, a.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// write prints the application's table. An offset is not compared with the chain's head, so it has no lag.
func (a Application) write(table io.Writer, head uint64) {
	reached := "BLOCK\tLAG"
	if a.Commands {
		reached = "COMMAND"
	}
	_, _ = fmt.Fprintf(table, "\napplication %s\nPARTITION\tOWNER\tSTATE\t%s\tSTANDBYS\n", a.Name, reached)
	for _, p := range a.Partitions {
		owner := topics.Owner{Instance: "-", State: "-"}
		position, lag := "-", "-"
		if p.Owner != nil {
			owner = *p.Owner
			position = fmt.Sprint(owner.At.Number)
			lag = fmt.Sprint(max(head, owner.At.Number) - owner.At.Number)
		}
		if !a.Commands {
			position += "\t" + lag
		}
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", p.ID, owner.Instance, owner.State, position, p.standbys())
	}
}

// standbys names the partition's standbys, and how far they are or why they are not running.
func (p Partition) standbys() string {
	if len(p.Standbys) == 0 {
		return "-"
	}
	all := make([]string, 0, len(p.Standbys))
	for _, o := range p.Standbys {
		about := fmt.Sprintf("%s at %d", o.Instance, o.At.Number)
		if o.State != topics.StateRunning {
			about = o.Instance + " " + o.State
		}
		all = append(all, about)
	}
	return strings.Join(all, ", ")
}

// writeFaults writes what stopped the holders of a partition, and what an operator should do.
func (p Partition) writeFaults(w io.Writer, app string) error {
	holders := p.Standbys
	if p.Owner != nil {
		holders = append([]topics.Owner{*p.Owner}, holders...)
	}
	for _, o := range holders {
		if o.Fault == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s partition %d is stopped on %s: %s\n", app, p.ID, o.Instance, o.Fault); err != nil {
			return err
		}
	}
	return nil
}

func age(d time.Duration) string { return max(d, 0).Round(10 * time.Millisecond).String() }

// ErrUnowned means that a partition has no owner that tells of itself.
var ErrUnowned = errors.New("partitions without an owner")

// Print is `lienstream status`. ErrUnowned, after the tables, where partitions of an application have no owner: a
// script can go by that.
func Print(ctx context.Context, cfg kafka.Config, cat topics.Catalogue, expected []string, w io.Writer) error {
	s, err := Read(ctx, cfg, cat, expected)
	if err != nil {
		return err
	}
	if err := s.Write(w); err != nil {
		return err
	}
	var without []string
	for _, a := range s.Applications {
		for _, p := range a.Partitions {
			if p.Owner == nil {
				without = append(without, fmt.Sprintf("%s %d", a.Name, p.ID))
			}
		}
	}
	if len(without) > 0 {
		return fmt.Errorf("%w: %s", ErrUnowned, strings.Join(without, ", "))
	}
	return nil
}
