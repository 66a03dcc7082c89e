// Lienstream is the stream-processing pipeline behind a marketplace of collateralized deals: one binary,
// its roles as subcommands. Package roles has them; this file holds no logic of its own.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"

	"github.com/lienstream/lienstream/cmd/lienstream/roles"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	logging.Disable()            // who uses Redis logs what fails, with a format and a level
	if err := roles.Run(ctx, roles.System(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "lienstream:", err)
		os.Exit(1)
	}
}
