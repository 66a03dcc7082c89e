package roles

import (
	"context"
	"errors"
	"fmt"

	"github.com/peterbourgon/ff/v4"
	"github.com/peterbourgon/ff/v4/ffhelp"
	"github.com/peterbourgon/ff/v4/ffyaml"
)

// Run runs the command line args, without the program's name, on env until ctx is done.
func Run(ctx context.Context, env Environment, args []string) error {
	g := newProgram()
	flags := g.flags()
	flags.noteGiven(args)
	command := g.commands(env, flags)
	err := command.ParseAndRun(ctx, args,
		ff.WithEnvVarPrefix(variablePrefix), ff.WithConfigFileFlag("config"), ff.WithConfigFileParser(ffyaml.Parse))
	if errors.Is(err, ff.ErrHelp) {
		fmt.Fprintf(env.Stderr, "\n%s\n", ffhelp.Command(command))
		return nil
	}
	return err
}

// commands builds the tree of subcommands.
func (g *program) commands(env Environment, f *Flags) *ff.Command {
	root := &ff.Command{Name: "lienstream", Usage: "lienstream <command> [flags]", Flags: f.set, Exec: unknown}
	add := func(name, help string, exec func(context.Context) error) {
		root.Subcommands = append(root.Subcommands, &ff.Command{
			Name: name, Usage: "lienstream " + name + " [flags]", ShortHelp: help,
			Flags: ff.NewFlagSet(name).SetParent(f.set),
			Exec: func(ctx context.Context, args []string) error {
				if len(args) > 0 {
					return fmt.Errorf("%s: unexpected argument %q", name, args[0])
				}
				return exec(ctx)
			},
		})
	}
	for _, r := range g.roles {
		add(r.Name(), r.Help(), func(ctx context.Context) error { return g.run(ctx, env, r) })
	}
	root.Subcommands = append(root.Subcommands, g.topicsCommand(env, f), g.supportCommand(env, f), g.notifyCommand(env, f))
	add("status", "show how far the ingester is, and of each application who holds each partition and how far", func(ctx context.Context) error { return g.status(ctx, env) })
	add("config", "print every flag's effective value and its source; secrets are masked", func(context.Context) error { return f.write(env.Stdout) })
	add("version", "print the build", func(context.Context) error { return version(env.Stdout) })
	return root
}

// unknown is the Exec of commands that only have subcommands.
func unknown(_ context.Context, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("unknown command %q; see lienstream --help", args[0])
	}
	return ff.ErrHelp
}
