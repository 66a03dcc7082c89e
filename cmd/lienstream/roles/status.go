package roles

import (
	"context"

	"github.com/lienstream/lienstream/cmd/lienstream/status"
)

// status is `lienstream status`. With the flags of the processors it knows which applications must have owners, even
// if no node announces them.
func (g *program) status(ctx context.Context, env Environment) error {
	p := g.process(env)
	if err := g.processors.checkApplications(); err != nil {
		return err
	}
	return status.Print(ctx, p.Kafka(), p.Catalogue(), g.processors.applications(p), p.Stdout)
}
