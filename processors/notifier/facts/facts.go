// Package facts is an application of the engine that sends chain facts to the notifier: it follows deals in the
// raw topic, and emits commands for their borrowers and lenders, and the time of the chain. It must not know
// subscriptions.
package facts

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
)

// Tables. Their IDs are stored on disk.
var (
	deals  = &state.Table{ID: 1, Name: "deals"}  // deal ID: an open deal, from its events
	clock  = &state.Table{ID: 2, Name: "clock"}  // the last block that is, or will be, sent as a tick, and the last tick
	waits  = &state.Table{ID: 3, Name: "waits"}  // block number: a tick that is sent once the block is confirmed; block number ‖ token: an asset that is sent once the block is final
	epochs = &state.Table{ID: 4, Name: "epochs"} // epoch: its budgets
)

// Policy says which block is the clock for firing alerts. Facts of a deal at the head are always sent at once, and a
// reorg retracts them: they cancel alerts that are no longer true.
type Policy string

// The policies.
const (
	Latest    Policy = "latest"
	Safe      Policy = "safe"
	Finalized Policy = "finalized"
)

// DefaultPolicy is the policy if the operator names none.
const DefaultPolicy = Safe

// Policies are all of them.
var Policies = []Policy{Latest, Safe, Finalized}

// confirms is the clock's block as of a barrier. If no node has a safe block, it is the finalized one.
func (p Policy) confirms(b *topics.BlockEnd) uint64 {
	switch p {
	case Latest:
		return b.Block.Number
	case Safe:
		return max(b.Safe, b.Finalized)
	case Finalized:
	}
	return b.Finalized
}

// Minimum distance of ticks, in block time and in real time, so that fast chains and compressed time do not produce too
// many.
const (
	TickSeconds = 5
	TickBlocks  = 10
)

// App implements engine.BarrierApp. It is safe for concurrent use by the tasks of a node.
//
// Invariants:
//  1. A tick of a partition follows the facts of all its blocks up to that time. So once all partitions have sent
//     their ticks up to a time, all facts up to it have arrived.
//  2. Facts about one thing alternate: a deal was funded, and has ended; a budget has reached a stage, and no longer
//     has. An epoch opens once. An event that the contract cannot have emitted, of a block that a node made up, changes
//     nothing: it would replace a fact that its retraction does not restore. For the same reason a token's symbol is
//     sent only once its block is final, under any policy.
type App struct {
	decoder    *contracts.Decoder
	partitions int32
	policy     Policy
}

// New makes the application. partitions is the number of partitions of both the raw topic and the notifier's
// command topic.
func New(decoder *contracts.Decoder, partitions int32, policy Policy) *App {
	return &App{decoder, partitions, policy}
}

// Tables lists every table.
func (*App) Tables() []*state.Table { return []*state.Table{deals, clock, waits, epochs} }

// Version was raised when amounts returned to a budget began to retract news: a build that skips them would leave
// untrue news.
func (*App) Version() (version, since uint32) { return 1, 0 }

// Apply applies a log of a deal, an asset or an epoch; others are skipped.
func (a *App) Apply(w state.Writer, rec topics.Raw) error {
	log, ok := rec.(*topics.Log)
	if !ok {
		return nil
	}
	at := log.Block.Timestamp
	switch e := a.decoder.Decode(log.Address, log.Topics, log.Data).(type) {
	case *contracts.DealListed:
		return a.list(w, &notifier.Deal{
			ID: e.DealID.Dec(), Borrower: e.Borrower, Token: e.Token, Amount: e.AmountOrTokenID.Dec(), Position: e.Kind == contracts.KindPosition,
			Cap: e.Cap.Dec(),
		})
	case *contracts.DealTermsUpdated:
		return a.edit(w, at, e.DealID.Dec(), func(d *notifier.Deal) bool {
			d.Cap = e.Cap.Dec()
			return false
		})
	case *contracts.DealFunded:
		return a.edit(w, at, e.DealID.Dec(), func(d *notifier.Deal) bool {
			d.Lender, d.Price = e.Lender, e.Price.Dec()
			d.FundedAt, d.Expiry, d.GraceEnd, d.Open = e.FundedAt, e.Expiry, e.GraceEnd, true
			return true
		})
	case *contracts.DealReclaimed:
		return a.end(w, at, e.DealID.Dec())
	case *contracts.DealClaimed:
		return a.end(w, at, e.DealID.Dec())
	case *contracts.DealCancelled:
		return a.cancel(w, e.DealID.Dec())
	case *contracts.AssetSet:
		return called(w, log.Block, &notifier.Asset{Token: e.Token, Symbol: e.Symbol, Decimals: e.Decimals})
	case *contracts.EpochOpened:
		return a.opened(w, at, e)
	case *contracts.EpochReserved:
		return a.reserved(w, at, e.N, e.Term, &e.ReservedAfter)
	case *contracts.EpochReturned:
		return a.reserved(w, at, e.N, e.Term, &e.ReservedAfter)
	}
	return nil
}

// list adds a deal that is not known.
func (a *App) list(w state.Writer, d *notifier.Deal) error {
	if was, err := get(w, d.ID); err != nil || was != nil {
		return err
	}
	return put(w, d)
}

// cancel drops a deal that was never funded.
func (a *App) cancel(w state.Writer, id string) error {
	d, err := get(w, id)
	if err != nil || d == nil || d.Open {
		return err
	}
	w.Delete(deals, []byte(id))
	return nil
}

// edit changes a known deal that is not funded, and sends it if change returns true.
func (a *App) edit(w state.Writer, at uint64, id string, change func(*notifier.Deal) (tell bool)) error {
	d, err := get(w, id)
	if err != nil || d == nil || d.Open {
		return err
	}
	if !change(d) {
		return put(w, d)
	}
	if err := a.tell(w, at, d); err != nil {
		return err
	}
	return put(w, d)
}

// end sends that a funded deal has ended.
func (a *App) end(w state.Writer, at uint64, id string) error {
	d, err := get(w, id)
	if err != nil || d == nil || !d.Open {
		return err
	}
	w.Delete(deals, []byte(id))
	d.Open = false
	return a.tell(w, at, d)
}

// tell sends the deal to its parties.
func (a *App) tell(w state.Writer, at uint64, d *notifier.Deal) error {
	told := []common.Address{d.Borrower}
	if d.Lender != d.Borrower {
		told = append(told, d.Lender)
	}
	for _, wallet := range told {
		cmd := notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: *d, At: at}}
		if err := a.emit(w, topics.Partition(wallet[:], a.partitions), wallet[:], &cmd); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) emit(w state.Writer, partition int32, key []byte, cmd *notifier.Command) error {
	value, err := cmd.Encode()
	if err != nil {
		return err
	}
	w.Emit(topics.CommandFamily(topics.AppNotifier), topics.Routed(partition, key), value)
	return nil
}

// toAll sends a command to every partition of the notifier.
func (a *App) toAll(w state.Writer, cmd *notifier.Command) error {
	for p := range a.partitions {
		if err := a.emit(w, p, nil, cmd); err != nil {
			return err
		}
	}
	return nil
}

// EndBlock sends the time of this partition's confirmed blocks to every partition of the notifier, at
// intervals.
func (a *App) EndBlock(w state.Writer, partition int32, b *topics.BlockEnd, written time.Time) error {
	number, time, err := last(w)
	if err != nil {
		return err
	}
	tick := chainTime(partition, b, number, time, written)
	// A block that is no higher than the last one: that was sent while the chain stood still, and then reverted.
	if b.Block.Number <= number || number == 0 || b.Block.Number >= number+TickBlocks && b.Block.Timestamp >= time+TickSeconds {
		key := mark(w, b.Block)
		w.Put(waits, key[:8], key[8:])
	}
	return a.confirmed(w, b, tick)
}

// Idle sends what was confirmed since, if there is no newer block. The last block is the chain's time then, however
// close the last tick is.
func (a *App) Idle(w state.Writer, partition int32, b *topics.BlockEnd, written time.Time) error {
	number, time, err := last(w)
	if err != nil {
		return err
	}
	tick := chainTime(partition, b, number, time, written)
	if b.Block.Number > number && b.Block.Number <= a.policy.confirms(b) {
		tick.Block, tick.Time = b.Block.Number, b.Block.Timestamp
		mark(w, b.Block)
	}
	return a.confirmed(w, b, tick)
}

// last is the last block that is, or will be, sent as a tick; 0: there is none.
func last(w state.Writer) (number, time uint64, err error) {
	row, err := w.Get(clock, []byte("tick"))
	if err != nil || len(row) != 16 {
		return 0, 0, err
	}
	return binary.BigEndian.Uint64(row), binary.BigEndian.Uint64(row[8:]), nil
}

// mark makes a block the last one, and returns its number and time as they are stored.
func mark(w state.Writer, b topics.BlockRef) []byte {
	row := timeRow(b.Number, b.Timestamp)
	w.Put(clock, []byte("tick"), row)
	return row
}

func timeRow(number, time uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, number), time)
}

// called stores the symbol and decimals of a token. Its key begins like that of a tick, for which an older build takes
// it.
func called(w state.Writer, b topics.BlockRef, asset *notifier.Asset) error {
	row, err := json.Marshal(asset)
	if err == nil {
		at := timeRow(b.Number, b.Timestamp)
		w.Put(waits, slices.Concat(at[:8], asset.Token[:]), slices.Concat(at[8:], row))
	}
	return err
}

// confirmed sends the assets of final blocks, and the latest confirmed tick: one that waited, or this one. If none is
// confirmed, it repeats the last with the chain's present head, so that the notifier knows whether it has caught up.
func (a *App) confirmed(w state.Writer, b *topics.BlockEnd, tick notifier.Tick) error {
	var told [][]byte
	var names []notifier.Asset
	var fault error
	ticks := tick.Block != 0
	err := w.Scan(waits, nil, nil, func(key, row []byte) bool {
		number := binary.BigEndian.Uint64(key)
		name := len(key) > 8
		switch {
		case number > a.policy.confirms(b):
			return false
		case name && number > b.Finalized: // a reorg could not restore the former symbol
			return true
		}
		told = append(told, slices.Clone(key))
		if name {
			var asset notifier.Asset
			fault = json.Unmarshal(row[8:], &asset)
			names = append(names, asset)
			return fault == nil
		}
		if ticks = true; number >= tick.Block {
			tick.Block, tick.Time = number, binary.BigEndian.Uint64(row)
		}
		return true
	})
	if err := errors.Join(err, fault); err != nil {
		return err
	}
	for _, key := range told {
		w.Delete(waits, key)
	}
	for i := range names {
		if err := a.toAll(w, &notifier.Command{Asset: &names[i]}); err != nil {
			return err
		}
	}
	if !ticks {
		row, err := w.Get(clock, lastTick)
		if err != nil || len(row) != 24 || tick.Written < int64(binary.BigEndian.Uint64(row[16:]))+repeatAfter.Milliseconds() {
			return err
		}
		tick.Block, tick.Time = binary.BigEndian.Uint64(row), binary.BigEndian.Uint64(row[8:])
	}
	if err := bound(w, b, &tick); err != nil {
		return err
	}
	w.Put(clock, lastTick, binary.BigEndian.AppendUint64(timeRow(tick.Block, tick.Time), uint64(tick.Written)))
	return a.toAll(w, &notifier.Command{Tick: &tick})
}

// lastTick is the row of the last tick: its block, the block's time, and when the ingester wrote its barrier.
var lastTick = []byte("told")

const repeatAfter = time.Minute

func get(w state.Writer, id string) (*notifier.Deal, error) {
	row, err := w.Get(deals, []byte(id))
	if err != nil || row == nil {
		return nil, err
	}
	d := new(notifier.Deal)
	if err := json.Unmarshal(row, d); err != nil {
		return nil, fmt.Errorf("row of deal %s: %w", id, err)
	}
	return d, nil
}

func put(w state.Writer, d *notifier.Deal) error {
	row, err := json.Marshal(d)
	if err == nil {
		w.Put(deals, []byte(d.ID), row)
	}
	return err
}
