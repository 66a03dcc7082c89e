// Package roles assembles the binary: its roles, its services and how they are wired in a process. The
// network, files, the clock and output go through an Environment, so that a simulation runs the same code; only
// variables are read from the system. It must hold no logic of a stage.
package roles

import (
	"context"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
)

// Role is a subcommand that runs until it is stopped. Its flags are bound to configurations that already hold
// the defaults, so a flag is one line, and each default is defined once, in its package.
type Role interface {
	Name() string
	Help() string
	// Flags registers the role's flags. All commands accept the flags of all roles, so that one file configures
	// all.
	Flags(f *Flags)
	// Check returns all errors of the configuration.
	Check(p *Process) error
	// Memory is the heap size up to which the garbage collector may trade memory for speed, of a process that keeps
	// to --memory. Where that says nothing, the sum over all roles stays below 300 MB. 0: no limit.
	Memory(p *Process) uint64
	// Least is the least that --memory may say.
	Least(p *Process) memory.Budget
	// Start builds the role and runs it in the process's group.
	Start(ctx context.Context, p *Process) error
}

// program is a set of roles, each with the defaults of its packages, and their shared settings.
type program struct {
	settings   *Settings
	processors *processorsRole // one of the roles
	serving    *servingRole    // one of the roles
	roles      []Role
	bound      *Flags // of the roles
}

func newProgram() *program {
	chain, ingest, processors := newChainRole(), newIngestRole(), newProcessorsRole()
	serving := newServingRole(services()...)
	return &program{
		settings:   newSettings(),
		processors: processors,
		serving:    serving,
		roles:      []Role{&upRole{chain, ingest, processors, serving}, chain, ingest, processors, serving},
	}
}

// flags registers the flags of all roles.
func (g *program) flags() *Flags {
	f := newFlags()
	g.settings.flags(f)
	for _, r := range g.roles {
		r.Flags(f)
	}
	g.bound = f
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
