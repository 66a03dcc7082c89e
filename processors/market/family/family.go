// Package family defines how a family of entities describes itself to the market: name, tables, events and how
// it applies them. It must know no family.
package family

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Family describes a family. The dispatch of events, the tables of the state and the page of their IDs are
// derived from it.
type Family struct {
	Name   string
	Tables []*state.Table
	Events []contracts.Event // one of each type that Apply handles

	// Apply applies an event, and returns the invariant that it violates, if any. It must depend on nothing but
	// its arguments: no clock, no chain.
	Apply func(w state.Writer, at topics.EventMeta, event contracts.Event) (violation string, err error)
}

// ErrForeign is returned by Apply for an event of a contract outside the market, such as a foreign token: it is
// counted, and not published.
var ErrForeign = errors.New("event of a contract outside the market")

// Set is the families of the market.
type Set struct {
	families []Family
	applies  map[reflect.Type][]applied
}

type applied struct {
	name  string
	apply func(w state.Writer, at topics.EventMeta, event contracts.Event) (violation string, err error)
}

// NewSet makes a set. An event of several families is applied in this order.
func NewSet(families ...Family) *Set {
	s := &Set{families: families, applies: map[reflect.Type][]applied{}}
	for _, f := range families {
		for _, event := range f.Events {
			t := reflect.TypeOf(event)
			s.applies[t] = append(s.applies[t], applied{name: f.Name, apply: f.Apply})
		}
	}
	return s
}

// Apply passes an event to its families, until one returns a violated invariant. An event without a family
// changes nothing.
func (s *Set) Apply(w state.Writer, at topics.EventMeta, event contracts.Event) (violation string, err error) {
	for _, a := range s.applies[reflect.TypeOf(event)] {
		if violation, err = a.apply(w, at, event); err != nil {
			return "", fmt.Errorf("%s: %w", a.name, err)
		}
		if violation != "" {
			return violation, nil
		}
	}
	return "", nil
}

// Families lists the families, in their order.
func (s *Set) Families() []Family { return s.families }

// Tables lists the tables of all families.
func (s *Set) Tables() []*state.Table {
	var all []*state.Table
	for _, f := range s.families {
		all = append(all, f.Tables...)
	}
	return all
}
