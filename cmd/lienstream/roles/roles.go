// Package roles is what the binary is made of: its roles, its services and how a process of them is wired,
// over an Environment, so that a simulation runs the very same. It must hold no logic of a stage.
package roles

import (
	"context"
)

// Role is a subcommand that runs until it is told to stop. Its flags are registered into configurations that
// hold the defaults already: a flag is one line, and a default stands where its package says it.
type Role interface {
	Name() string
	Help() string
	// Flags registers the role's flags. All commands take the flags of all roles: one file fits all.
	Flags(f *Flags)
	// Check returns every fault of the configuration.
	Check(p *Process) error
	// Memory is how far the heap may grow before the collector gives up speed for space, all roles together
	// below 300 MB; 0: as it likes.
	Memory(p *Process) uint64
	// Start makes what the role is and runs it in the process's group.
	Start(ctx context.Context, p *Process) error
}

// program is a fresh set of roles, each with the defaults of its packages, and what they share.
type program struct {
	settings *Settings
	roles    []Role
}

func newProgram() *program {
	chain, ingest, processors := newChainRole(), newIngestRole(), newProcessorsRole()
	serving := newServingRole(services()...)
	return &program{
		settings: newSettings(),
		roles:    []Role{&upRole{chain, ingest, processors, serving}, chain, ingest, processors, serving},
	}
}

// flags registers those of all roles.
func (g *program) flags() *Flags {
	f := newFlags()
	g.settings.flags(f)
	for _, r := range g.roles {
		r.Flags(f)
	}
	return f
}

// Commands are the names of all subcommands.
func Commands() []string {
	var names []string
	for _, c := range newProgram().commands(Environment{}, newFlags()).Subcommands {
		names = append(names, c.Name)
	}
	return names
}
