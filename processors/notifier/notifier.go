// Package notifier is an application of the engine that keeps subscriptions and fires alerts: subscriptions,
// market facts, timers by block time and an outbox. It must not deliver anything itself, nor open an
// address: its Keys are for the sender, the resealer and the service.
package notifier

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
)

// App implements engine.CommandApp. It is safe for concurrent use by the tasks of a node.
//
// Invariants:
//  1. A command never stops a task: a command that cannot be decoded is counted and skipped, a refused one has
//     an outcome.
//  2. The same commands always result in the same rows: the time is that of the command, or the chain's in a
//     tick.
//  3. A deleted subscription keeps the time of its last message, so that no message is used twice.
//  4. Before an address is confirmed, it gets only the request to confirm it. Older builds, which know neither that
//     command nor that stage, send nothing there.
type App struct {
	partitions int // of each topic; each of the raw one sends ticks
	most       int // maximum deals that one tick goes through
	unread     *prometheus.CounterVec
}

// New makes the application. partitions is each topic's number of partitions.
func New(partitions int32, reg prometheus.Registerer) *App {
	a := &App{partitions: int(partitions), most: maxFired, unread: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lienstream", Subsystem: "notifier", Name: "unread_commands_total",
		Help: "Commands that could not be decoded and were skipped.",
	}, []string{"reason"})}
	reg.MustRegister(a.unread)
	return a
}

// Tables lists every table.
func (*App) Tables() []*state.Table {
	return []*state.Table{subscriptions, outcomes, dealsOf, clocks, timers, outbox, tallies, dead, news, wants}
}

// ApplyCommand applies a command.
func (a *App) ApplyCommand(w state.Writer, c engine.Command) error {
	cmd, err := decodeCommand(c.Value)
	if err != nil {
		a.unread.WithLabelValues("malformed").Inc()
		return nil //nolint:nilerr // it is counted, and stays in the topic
	}
	switch {
	case cmd.Subscribe != nil:
		err = subscribe(w, c.Time, cmd.Subscribe)
	case cmd.Await != nil:
		err = a.ask(w, c.Time, cmd.Await, false)
	case cmd.Ask != nil:
		err = a.ask(w, c.Time, cmd.Ask, true)
	case cmd.Admit != nil:
		err = admit(w, c.Time, cmd.Admit)
	case cmd.Permit != nil:
		err = permit(w, c.Time, cmd.Permit)
	case cmd.Confirm != nil:
		err = confirm(w, c.Time, cmd.Confirm)
	case cmd.Refuse != nil:
		err = refuse(w, c.Time, cmd.Refuse)
	case cmd.Reseal != nil:
		err = reseal(w, cmd.Reseal)
	case cmd.Unsubscribe != nil:
		err = unsubscribe(w, c.Time, cmd.Unsubscribe)
	case cmd.Fact != nil:
		err = a.fact(w, cmd.Fact, cmd.Removed)
	case cmd.News != nil:
		err = a.tell(w, c.Time, cmd.News, !cmd.Removed)
	case cmd.Returned != nil:
		err = a.tell(w, c.Time, cmd.Returned, cmd.Removed)
	case cmd.Asset != nil: // final: no reorg changes it
		err = putAsset(w, cmd.Asset)
	case cmd.Tick != nil && cmd.Removed: // the next tick has the earlier time
	case cmd.Tick != nil:
		err = a.tick(w, &c, cmd.Tick)
	case cmd.Claim != nil:
		err = claim(w, cmd.Claim)
	case cmd.Report != nil:
		err = report(w, c.Time, cmd.Report)
	default:
		a.unread.WithLabelValues("unknown").Inc()
	}
	if err != nil {
		return fmt.Errorf("apply command at offset %d: %w", c.At.Number-1, err)
	}
	return nil
}
