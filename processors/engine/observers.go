package engine

import "github.com/lienstream/lienstream/processors/engine/state"

// observers calls several observers.
type observers []Observer

func (os observers) Opened(p Partition, v state.View) {
	for _, o := range os {
		o.Opened(p, v)
	}
}

func (os observers) Applied(p Partition, v state.View, changes []Change) {
	for _, o := range os {
		o.Applied(p, v, changes)
	}
}

func (os observers) Closed(p Partition) {
	for _, o := range os {
		o.Closed(p)
	}
}
