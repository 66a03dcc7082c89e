// Package facts is the application of the engine that tells the notifier what the chain came to: it follows deals
// in the raw topic and gives commands about their borrowers and lenders, and the time of the chain. It must not
// know who wants to be told of it.
package facts

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
)

// Tables. Their IDs are on disk.
var (
	deals = &state.Table{ID: 1, Name: "deals"} // deal ID: what its events said, while it is open
	clock = &state.Table{ID: 2, Name: "clock"} // one row: the last block that was told as a tick
)

// How far apart ticks are, in both: a chain of many blocks a second and one of compressed time tell alike few.
const (
	TickSeconds = 5
	TickBlocks  = 10
)

// App implements engine.BarrierApp. It is safe for concurrent use by the tasks of a node.
//
// A tick of a partition comes behind the facts of all its blocks up to that time. So whoever has the ticks of all
// partitions up to a time has all facts up to it.
type App struct {
	decoder    *contracts.Decoder
	partitions int32
}

// New makes the application, for as many partitions as the raw topic and the notifier's command topic have.
func New(decoder *contracts.Decoder, partitions int32) *App { return &App{decoder, partitions} }

// Tables lists every table.
func (*App) Tables() []*state.Table { return []*state.Table{deals, clock} }

// Apply applies a log of a deal; all others are passed over.
func (a *App) Apply(w state.Writer, rec topics.Raw) error {
	log, ok := rec.(*topics.Log)
	if !ok {
		return nil
	}
	switch e := a.decoder.Decode(log.Address, log.Topics, log.Data).(type) {
	case *contracts.DealListed:
		return put(w, &notifier.Deal{
			ID: e.DealID.Dec(), Borrower: e.Borrower, Token: e.Token, Amount: e.AmountOrTokenID.Dec(), Cap: e.Cap.Dec(),
		})
	case *contracts.DealTermsUpdated:
		return a.edit(w, e.DealID.Dec(), func(d *notifier.Deal) bool {
			d.Cap = e.Cap.Dec()
			return false
		})
	case *contracts.DealFunded:
		return a.edit(w, e.DealID.Dec(), func(d *notifier.Deal) bool {
			d.Lender, d.Price = e.Lender, e.Price.Dec()
			d.FundedAt, d.Expiry, d.GraceEnd, d.Open = e.FundedAt, e.Expiry, e.GraceEnd, true
			return true
		})
	case *contracts.DealReclaimed:
		return a.end(w, e.DealID.Dec())
	case *contracts.DealClaimed:
		return a.end(w, e.DealID.Dec())
	case *contracts.DealCancelled:
		w.Delete(deals, []byte(e.DealID.Dec()))
	}
	return nil
}

// edit changes a deal that is known, and tells of it where the change says so.
func (a *App) edit(w state.Writer, id string, change func(*notifier.Deal) (tell bool)) error {
	d, err := get(w, id)
	if err != nil || d == nil {
		return err
	}
	if !change(d) {
		return put(w, d)
	}
	if err := a.tell(w, d); err != nil {
		return err
	}
	return put(w, d)
}

// end tells of a funded deal that it is no longer open.
func (a *App) end(w state.Writer, id string) error {
	d, err := get(w, id)
	if err != nil || d == nil {
		return err
	}
	w.Delete(deals, []byte(id))
	d.Open = false
	return a.tell(w, d)
}

// tell gives the deal to those it concerns.
func (a *App) tell(w state.Writer, d *notifier.Deal) error {
	told := []common.Address{d.Borrower}
	if d.Lender != d.Borrower {
		told = append(told, d.Lender)
	}
	for _, wallet := range told {
		cmd := notifier.Command{Fact: &notifier.Fact{Wallet: wallet, Deal: *d}}
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

// EndBlock tells every partition of the notifier how far this one is, now and then.
func (a *App) EndBlock(w state.Writer, partition int32, b *topics.BlockEnd) error {
	row, err := w.Get(clock, []byte("tick"))
	if err != nil {
		return err
	}
	if len(row) == 16 && (b.Block.Number < binary.BigEndian.Uint64(row)+TickBlocks || b.Block.Timestamp < binary.BigEndian.Uint64(row[8:])+TickSeconds) {
		return nil
	}
	w.Put(clock, []byte("tick"), binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, b.Block.Number), b.Block.Timestamp))
	for p := range a.partitions {
		if err := a.emit(w, p, nil, &notifier.Command{Tick: &notifier.Tick{From: partition, Block: b.Block.Number, Time: b.Block.Timestamp}}); err != nil {
			return err
		}
	}
	return nil
}

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
