package roles

import (
	"context"
	"errors"

	"github.com/peterbourgon/ff/v4"

	"github.com/lienstream/lienstream/topics/kafka"
)

// topicsCommand is `lienstream topics apply|check|tail`.
func (g *program) topicsCommand(env Environment, f *Flags) *ff.Command {
	command := &ff.Command{Name: "topics", Usage: "lienstream topics apply|check|tail [flags]", ShortHelp: "create and check topics, and print their records", Exec: unknown}
	add := func(name, help string, flags *ff.FlagSet, exec func(context.Context, *Process, []string) error) {
		command.Subcommands = append(command.Subcommands, &ff.Command{
			Name: name, Usage: "lienstream topics " + name, ShortHelp: help, Flags: flags.SetParent(f.set),
			Exec: func(ctx context.Context, args []string) error {
				p := g.process(env)
				if err := p.checkServers(true); err != nil {
					return err
				}
				return exec(ctx, p, args)
			},
		})
	}
	add("apply", "create missing topics, and report differences from the catalogue", ff.NewFlagSet("apply"), func(ctx context.Context, p *Process, _ []string) error {
		return kafka.ApplyCatalogue(ctx, p.Kafka(), p.Catalogue(), p.Stdout)
	})
	add("check", "report differences from the catalogue", ff.NewFlagSet("check"), func(ctx context.Context, p *Process, _ []string) error {
		err := kafka.CheckCatalogue(ctx, p.Kafka(), p.Catalogue())
		if err == nil || errors.Is(err, kafka.ErrDrift) {
			err = errors.Join(err, kafka.CheckBrokers(ctx, p.Kafka()))
		}
		return err
	})
	flags := ff.NewFlagSet("tail")
	from := flags.IntLong("from", -10, "offset to start at in each partition; negative: that many records before its end")
	limit := flags.IntLong("limit", 0, "maximum records to print; 0: no limit")
	follow := flags.BoolLong("follow", "keep printing new records")
	add("tail", "print a topic's records as JSON, one per line, for example: tail ent.deal", flags, func(ctx context.Context, p *Process, args []string) error {
		if len(args) != 1 {
			return errors.New("topics tail: name one topic, such as ent.deal or raw.logs")
		}
		if err := p.registerSchemas(ctx); err != nil {
			return err
		}
		return kafka.Tail(ctx, p.Kafka(), p.Catalogue(), kafka.TailOptions{Topic: args[0], From: int64(*from), Limit: *limit, Follow: *follow}, p.Stdout)
	})
	return command
}
