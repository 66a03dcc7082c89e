package roles

import (
	"context"

	"github.com/lienstream/lienstream/cmd/lienstream/status"
)

// status is `lienstream status`.
func (g *program) status(ctx context.Context, env Environment) error {
	p := g.asking(env)
	return status.Print(ctx, p.Kafka(), p.Catalogue(), p.Stdout)
}
