package engine

import (
	"errors"
	"fmt"
	"time"
)

// Ready is nil while no task is stopped and every partition that this node holds is as of a chain seen within
// maxAge. A node without partitions is ready.
func (n *Node) Ready(maxAge time.Duration) error {
	errs := []error{n.Stopped()}
	if n.commands != nil {
		return errs[0] // nobody may have called Stopped
	}
	for _, w := range n.Watermarks() {
		if age := n.clock.since(w.ObservedAt); age > maxAge {
			errs = append(errs, fmt.Errorf("partition %d: the chain was last seen %s ago", w.Partition, age.Round(time.Millisecond)))
		}
	}
	return errors.Join(errs...)
}
