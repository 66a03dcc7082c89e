// Package market is the market as an application of the engine: it decodes each log and passes the event to the
// families that handle it. It must not keep state outside the store, and must depend on nothing but the record
// and the given state.
package market

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/assets"
	"github.com/lienstream/lienstream/processors/market/balances"
	"github.com/lienstream/lienstream/processors/market/burns"
	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/drips"
	"github.com/lienstream/lienstream/processors/market/epochs"
	"github.com/lienstream/lienstream/processors/market/family"
	"github.com/lienstream/lienstream/processors/market/holders"
	"github.com/lienstream/lienstream/processors/market/liquidity"
	"github.com/lienstream/lienstream/processors/market/prices"
	"github.com/lienstream/lienstream/processors/market/stats"
	"github.com/lienstream/lienstream/topics"
)

// App implements engine.App. It is safe for concurrent use by the tasks of a node.
//
// Invariants:
//  1. A log never stops a task: logs that cannot be decoded or contradict the state are counted and skipped.
//     The raw topic keeps them.
//  2. An error means that the state could not be read or contains a corrupt row.
//  3. The same records always result in the same writes: a replay affects nothing else but metrics and the
//     log.
type App struct {
	decoder  *contracts.Decoder
	families *family.Set
	metrics  *metrics
	logger   *zap.Logger
}

// Families are the families of the market. An event of several families is applied in this order.
func Families(d contracts.Deployment) *family.Set {
	return family.NewSet(
		deals.Family(stats.Apply), balances.Family, assets.Family, drips.Family, epochs.Family, burns.Family,
		liquidity.Family(d), prices.Family, holders.Family, stats.Family,
	)
}

// New makes the application for the decoder's contracts.
func New(decoder *contracts.Decoder, logger *zap.Logger, registerer prometheus.Registerer) *App {
	return &App{decoder: decoder, families: Families(decoder.Deployment()), metrics: newMetrics(registerer), logger: logger}
}

// Tables lists every table of every family.
func (a *App) Tables() []*state.Table { return a.families.Tables() }

// Version implements engine.Versioned. Version 1 sums bids up: what was made before has no sums. Version 2
// publishes ticks, in rows of another form. Version 3 lists a deal's drips by age, and counts the numbers of
// medians in trees. Version 4 knows when a pool was initialised, and what is traded in it. Version 5
// knows who holds meme tokens. Version 6 keeps what collateral, pools and positions were on each day. Version 7 knows which
// liquidity has stood for half an hour, and the closes of hours. Version 8 prunes prices little by little. Version 9 knows
// between which ticks a price was in each second: what was made before cannot be continued. Version 10 sums
// ticks up by stretches. Version 11 knows how much liquidity an hour closed with. Version 12 knows which block last changed
// a pool's liquidity, and how much an hour closed with that stayed. Version 13 knows how much of it was there at all times of
// each second, and how far the price went in an hour. Version 14 applies ledgers whose parts come
// with several blocks. Version 15 takes the origin of a ledger later. Version 16 counts few numbers of medians in one row.
func (a *App) Version() (version, since uint32) { return 16, 16 }

// Apply applies a *topics.Log, a *topics.Probe or a *topics.Ledger.
func (a *App) Apply(w state.Writer, rec topics.Raw) error {
	switch r := rec.(type) {
	case *topics.Log:
		meta := topics.EventMeta{Block: r.Block, Tx: r.TxHash, LogIndex: r.LogIndex}
		return a.apply(w, meta, a.decoder.Decode(r.Address, r.Topics, r.Data))
	case *topics.Probe:
		a.metrics.probes.Inc()
		if err := assets.ApplyProbe(w, r); err != nil {
			return fmt.Errorf("apply probe of %s: %w", r.Token, err)
		}
		return nil
	case *topics.Ledger:
		if err := holders.ApplyLedger(w, r); err != nil {
			return fmt.Errorf("apply ledger of %s: %w", r.Token, err)
		}
		return nil
	default:
		return fmt.Errorf("apply: unexpected record type %T", rec)
	}
}

func (a *App) apply(w state.Writer, meta topics.EventMeta, event contracts.Event) error {
	if e, ok := event.(*contracts.Unknown); ok {
		a.unknown(meta, e)
		return nil
	}
	topic := topics.FamilyOf(event)
	violation, err := a.families.Apply(w, meta, event)
	switch {
	case errors.Is(err, family.ErrForeign):
		topic = ""
	case err != nil:
		return fmt.Errorf("apply %s: %w", event.Name(), err)
	}
	a.metrics.event(topic).Inc()
	if violation != "" {
		a.metrics.violation.WithLabelValues(event.Name(), violation).Inc()
	}
	if topic == "" || w.Silent() {
		return nil // the vault's own fee, or a foreign token: the raw topic keeps them
	}
	return emit(w, topic, meta, event)
}

// unknown counts a log that matches no event. A malformed log of a known event is also logged, since the
// contract cannot emit it. Other events of our contracts are normal.
func (a *App) unknown(meta topics.EventMeta, e *contracts.Unknown) {
	a.metrics.unknown.WithLabelValues(e.Reason).Inc()
	if e.Reason == contracts.ReasonTopics || e.Reason == contracts.ReasonData {
		a.logger.Warn("skipped a log that no event matches", zap.Uint64("block", meta.Block.Number), zap.Uint32("log", meta.LogIndex),
			zap.Stringer("address", e.Address), zap.String("reason", e.Reason))
	}
}

// emit publishes the event, whether or not it fits the state.
func emit(w state.Writer, topic string, meta topics.EventMeta, event contracts.Event) error {
	buf := scratch.Get().(*[]byte)
	defer scratch.Put(buf)
	*buf = topics.AppendEventKey((*buf)[:0], meta)
	n := len(*buf)
	var err error
	if *buf, err = topics.AppendEvent(*buf, meta, event); err != nil {
		return err
	}
	w.Emit(topic, (*buf)[:n], (*buf)[n:])
	return nil
}

// scratch holds buffers for encoding events.
var scratch = sync.Pool{New: func() any { return new([]byte) }}
