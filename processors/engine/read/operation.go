package read

import (
	"context"
	"errors"
	"fmt"

	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
)

// Query is the parameters of an operation. It encodes and validates itself.
type Query interface {
	wire.Value
	// Validate returns an error for the first field that is out of bounds.
	Validate() error
}

// Views are the input of an operation: partitions of one node, all as of one block.
type Views struct {
	Source     Source
	Partitions []int32
	Of         []state.View // one per partition
}

// Operation is a read of an application: its name, its codec and the function that computes it on a node.
type Operation struct {
	name  string
	fresh func() Query
	brief bool // it reads few rows
	serve func(ctx context.Context, v *Views, q Query) ([]Item, error)
}

// NewOperation makes an operation from a function over views that are all as of one block. Its items ascend by
// key; the router merges those of several nodes.
func NewOperation[T any, Q interface {
	*T
	Query
}](name string, serve func(ctx context.Context, v *Views, q *T) ([]Item, error)) *Operation {
	return &Operation{
		name:  name,
		fresh: func() Query { return Q(new(T)) },
		serve: func(ctx context.Context, v *Views, q Query) ([]Item, error) {
			own, ok := q.(Q)
			if !ok {
				return nil, fmt.Errorf("%w: %s does not take a query of type %T", ErrBadRequest, name, q)
			}
			return serve(ctx, v, own)
		},
	}
}

// Brief marks an operation that reads few rows, whatever its query. It need not be cancellable, so it is sent to other
// nodes over shared connections (links.go).
func (o *Operation) Brief() *Operation {
	o.brief = true
	return o
}

// Name is the operation's name in requests between nodes.
func (o *Operation) Name() string { return o.name }

// decode reads a query from the network.
func (o *Operation) decode(payload []byte) (Query, error) {
	q := o.fresh()
	if err := wire.Decode(payload, q); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrBadRequest, o.name, err)
	}
	return q, o.validate(q)
}

func (o *Operation) validate(q Query) error {
	if err := q.Validate(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrBadRequest, o.name, err)
	}
	return nil
}

// Application is a named set of operations.
type Application struct {
	Name       string
	Operations []*Operation
}

// watermarks is an operation that every node serves for every application.
const watermarks = "watermarks"

// Validate reports all errors at once.
func (a Application) Validate() error {
	var faults []error
	if a.Name == "" || len(a.Name) > maxNameBytes {
		faults = append(faults, fmt.Errorf("application: name has %d bytes", len(a.Name)))
	}
	seen := map[string]bool{watermarks: true, "": true}
	for _, o := range a.Operations {
		if seen[o.name] || len(o.name) > maxNameBytes {
			faults = append(faults, fmt.Errorf("application %s: operation %q is a duplicate, or its name is too long", a.Name, o.name))
		}
		seen[o.name] = true
	}
	return errors.Join(faults...)
}

func (a Application) find(name string) *Operation {
	for _, o := range a.Operations {
		if o.name == name {
			return o
		}
	}
	return nil
}
