package engine

import (
	"errors"
	"fmt"
	"time"
)

// Ready is nil while no task stopped and every partition that this node holds was brought up to a chain
// seen within maxAge: by the age of watermarks, not by the process being up. A node that is given no
// partition is ready to be given one.
func (n *Node) Ready(maxAge time.Duration) error {
	errs := []error{n.Stopped()}
	if n.commands != nil {
		return errs[0] // nobody may have asked for anything
	}
	for _, w := range n.Watermarks() {
		if age := n.clock.since(w.ObservedAt); age > maxAge {
			errs = append(errs, fmt.Errorf("partition %d: the chain was last seen %s ago", w.Partition, age.Round(time.Millisecond)))
		}
	}
	return errors.Join(errs...)
}
