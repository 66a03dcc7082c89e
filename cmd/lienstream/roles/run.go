package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v4"
	"github.com/peterbourgon/ff/v4/ffhelp"
	"github.com/peterbourgon/ff/v4/ffyaml"
)

// parseFile reads the YAML file. A list of it is one value, as on the command line: its elements, separated by commas.
func parseFile(r io.Reader, set func(name, value string) error) error {
	var names []string
	values := map[string][]string{}
	err := ffyaml.Parse(r, func(name, value string) error {
		if values[name] == nil {
			names = append(names, name)
		}
		values[name] = append(values[name], value)
		return nil
	})
	for _, name := range names {
		err = cmp.Or(err, set(name, strings.Join(values[name], ",")))
	}
	return err
}

// Run runs the command line args, without the program's name, on env until ctx is done.
func Run(ctx context.Context, env Environment, args []string) error {
	g := newProgram()
	flags := g.flags()
	args, flags.given = flagsFirst(args)
	command := g.commands(env, flags)
	err := command.Parse(args,
		ff.WithEnvVarPrefix(variablePrefix), ff.WithConfigFileFlag("config"), ff.WithConfigFileParser(parseFile))
	if err != nil && !errors.Is(err, ff.ErrHelp) {
		return parseError(err, args)
	}
	if err == nil {
		err = command.Run(ctx)
	}
	if errors.Is(err, ff.ErrHelp) {
		fmt.Fprintf(env.Stderr, "\n%s\n", ffhelp.Command(command))
		return nil
	}
	return err
}

// flagsFirst moves a command's flags before its arguments: the flag library takes those behind the first argument for
// arguments too. given are the flags that args set, which the flag library does not tell from those of variables and files.
func flagsFirst(args []string) (ordered []string, given map[string]bool) {
	var arguments []string
	for head := args; ; {
		g := newProgram()
		flags := g.flags()
		command := g.commands(Environment{}, flags)
		if command.Parse(head) != nil {
			return args, nil // the real parser reports the error
		}
		rest := command.GetSelected().Flags.GetArgs()
		end := len(head) - len(rest)
		next := slices.IndexFunc(rest, func(arg string) bool { return strings.HasPrefix(arg, "-") })
		if next < 0 || slices.Contains(args, "--") { // which says where the arguments begin
			return slices.Concat(head, arguments), flags.areSet()
		}
		arguments = append(arguments, rest[:next]...)
		head = slices.Concat(head[:end], rest[next:])
	}
}

// ofParsers matches what the flag and number parsers add to an error, which does not help a user who mistyped a value.
var (
	ofParsers = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": |^(?:[\w ]+: )?parse args: (?:--)?`)
	ofValues  = regexp.MustCompile(`: set ("(?:[^"\\]|\\.)*"): parse error: (?:time: )?`)
)

// parseError returns a parser's error with the name of the flag, and without the parsers' own words.
func parseError(err error, args []string) error {
	text := ofValues.ReplaceAllString(ofParsers.ReplaceAllString(strings.TrimPrefix(err.Error(), "lienstream: "), ""), ": $1: ")
	if last := args[len(args)-1]; strings.HasSuffix(text, "missing value") {
		text = strings.TrimSuffix(last, "=") + ": missing value"
	}
	return errors.New(text)
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
	add("status", "show how far the ingester is, which node holds each partition of each application, and its last block", func(ctx context.Context) error { return g.status(ctx, env) })
	root.Subcommands = append(root.Subcommands, g.configCommand(env, f))
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
