package chain

import "slices"

// Nodes is the number of distinct nodes of some endpoints.
func Nodes(endpoints []string) int {
	hosts := nodesOf(endpoints)
	slices.Sort(hosts)
	return len(slices.Compact(hosts))
}
