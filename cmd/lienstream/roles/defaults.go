package roles

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v4"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
)

// computed is a default that is not a constant, and what it follows from: the machine, the role or another flag.
type computed struct {
	value string // where the flag itself does not hold it
	from  string
}

// isSet reports whether somebody set a flag: on the command line, by a variable or in the file.
func (f *Flags) isSet(name string) bool {
	flag, ok := f.set.GetFlag(name)
	return ok && flag.IsSet()
}

// fill gives a flag that nobody set its value. The first value that is not empty stays.
func (f *Flags) fill(name, value, from string) {
	if _, filled := f.computed[name]; filled || value == "" || f.isSet(name) {
		return
	}
	if err := f.values[name].Set(value); err != nil {
		panic(err) // a value of our own
	}
	f.computed[name] = computed{from: from}
}

// show has `lienstream config` print a value that follows from the flag.
func (f *Flags) show(name, value, from string) { f.computed[name] = computed{value, from} }

// refuse returns an error for each of the flags that somebody set.
func (f *Flags) refuse(why string, names ...string) []error {
	var errs []error
	for _, name := range names {
		if flag, _ := f.set.GetFlag(name); flag.IsSet() && flag.GetValue() != "false" {
			errs = append(errs, fmt.Errorf("%s: %s", name, why))
		}
	}
	return errs
}

// defaulter is a role or a service with flags whose defaults follow from the machine, the role or other flags.
type defaulter interface{ Defaults(p *Process) }

// process is a process with the flags' values. What nobody set has its default, first those of the parts.
func (g *program) process(env Environment, parts ...defaulter) *Process {
	p := &Process{Environment: env, Settings: g.settings, Servers: g.settings.servers(), flags: g.bound, Log: zap.NewNop()}
	for _, part := range parts {
		part.Defaults(p)
	}
	p.flags.fill("deployment", filepath.Join("contracts", "deployments", fmt.Sprintf("%d.json", p.ChainID)), "the chain ID")
	if host, err := env.Hostname(); err == nil { // the engine reports an empty name
		p.flags.fill("instance", host, "the host name")
	}
	p.Servers = g.settings.servers()
	return p
}

// fillMemory gives --memory the container's limit.
func (p *Process) fillMemory() {
	if p.Shared || p.memory > 0 {
		return
	}
	budget, err := memory.OfContainer()
	if err != nil {
		p.Log.Warn("cannot tell how much memory there is: the role takes what it needs", zap.Error(err))
		return
	}
	p.flags.fill("memory", budget.String(), "the container's limit")
}

// level is the log level. A person at a terminal reads the banner and the bar of `up`.
func (p *Process) level() string {
	switch {
	case p.logLevel != "auto":
		return p.logLevel
	case p.up && terminal(p.Stdout):
		return "warn"
	}
	return "info"
}

// configCommand is `lienstream config`.
func (g *program) configCommand(env Environment, f *Flags) *ff.Command {
	return &ff.Command{
		Name: "config", Usage: "lienstream config [up] [flags]", Flags: ff.NewFlagSet("config").SetParent(f.set),
		ShortHelp: "print the value in force of each flag and its source, or those in `up`; secrets are masked",
		Exec: func(_ context.Context, args []string) error {
			parts := []defaulter{g.processors, g.serving}
			switch up := g.roles[0].(*upRole); {
			case slices.Equal(args, []string{up.Name()}):
				parts = []defaulter{up}
			case len(args) > 0:
				return fmt.Errorf("config: unexpected argument %q; only `up` has other values", strings.Join(args, " "))
			}
			p := g.process(env, parts...)
			p.fillMemory()
			if p.logLevel == "auto" {
				f.show("log-level", p.level(), "auto")
			}
			if p.logFormat == "auto" {
				f.show("log-format", logFormat(p.logFormat, env.Stderr), "auto")
			}
			return f.write(env.Stdout)
		},
	}
}

// source says where a flag's value comes from.
func (c computed) source(is string) string {
	if c.from == "" {
		return is
	}
	return is + ": " + c.from
}

// of is the value to print.
func (c computed) of(value string) string { return cmp.Or(c.value, value) }
