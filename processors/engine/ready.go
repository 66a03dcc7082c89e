package engine

import (
	"errors"
	"fmt"
	"time"
)

// Ready is nil while no task is stopped, the disk takes every partition's state, the consumer group says what this node's share is,
// and every partition that it holds is as of a chain seen within maxAge. A node without partitions is ready.
func (n *Node) Ready(maxAge time.Duration) error {
	errs := []error{n.Stopped()}
	if since := n.waitsForGroup(); !since.IsZero() {
		errs = append(errs, fmt.Errorf("the consumer group has not said for %s which partitions this node owns", time.Since(since).Round(time.Second)))
	}
	for _, r := range n.replicas {
		if since := r.refusing(); !since.IsZero() {
			errs = append(errs, fmt.Errorf("partition %d: the disk has refused every start for %s", r.partition, time.Since(since).Round(time.Second)))
		}
		if err := r.unwritten.Load(); err != nil {
			errs = append(errs, fmt.Errorf("partition %d: the state cannot be written: %w", r.partition, *err))
		}
	}
	if n.commands != nil {
		return errors.Join(errs...) // nobody may have called
	}
	for _, w := range n.Watermarks() {
		if age := n.clock.since(w.ObservedAt); age > maxAge {
			errs = append(errs, fmt.Errorf("partition %d: the chain was last seen %s ago", w.Partition, age.Round(time.Millisecond)))
		}
	}
	return errors.Join(errs...)
}
