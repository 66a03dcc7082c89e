package notifier

import (
	"encoding/binary"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/state"
)

// touches counts the rows that are read and written.
type touches struct {
	state.Writer
	rows int
}

func (w *touches) Get(t *state.Table, key []byte) ([]byte, error) {
	w.rows++
	return w.Writer.Get(t, key)
}

func (w *touches) Put(t *state.Table, key, value []byte) {
	w.rows++
	w.Writer.Put(t, key, value)
}

func (w *touches) Delete(t *state.Table, key []byte) {
	w.rows++
	w.Writer.Delete(t, key)
}

func (w *touches) Scan(t *state.Table, prefix, after []byte, fn func(key, row []byte) bool) error {
	return w.Writer.Scan(t, prefix, after, func(key, row []byte) bool {
		w.rows++
		return fn(key, row)
	})
}

// A block costs what is due in it, however many have subscribed and however many deals are open: as many rows are touched.
func TestABlockCostsWhatIsDue(t *testing.T) {
	const dueSoon = 7
	cost := func(subscribers, deals int) map[string]int {
		d := newDesk(t)
		who := func(i int) (wallet common.Address) {
			binary.BigEndian.PutUint32(wallet[:], uint32(i+1))
			return wallet
		}
		for i := range subscribers {
			d.subscribe(who(i), Email, 0x7f)
		}
		funded, ended := endingDeal(common.Address{})
		for i := range deals {
			f := *funded
			if f.Wallet = who(i); i >= dueSoon {
				f.Deal.Expiry += 1_000_000
			}
			d.do(f.Wallet, Command{Fact: &f})
		}
		d.tick(funded.Deal.FundedAt + 1)
		measured := map[string]int{}
		measure := func(what string, c Command) {
			value, err := c.Encode()
			if err != nil {
				t.Fatal(err)
			}
			w := &touches{Writer: d.w}
			if err := d.app.ApplyCommand(w, engine.Command{Value: value, Time: d.at}); err != nil {
				t.Fatal(err)
			}
			measured[what] = w.rows
		}
		measure("nothing is due", Command{Tick: &Tick{Time: funded.Deal.FundedAt + 2}})
		measure("some is due", Command{Tick: &Tick{Time: funded.Deal.Expiry}})
		over := *ended
		over.Wallet = who(0)
		measure("a deal ends", Command{Fact: &over})
		measure("it has not ended", Command{Fact: &over, Removed: true})
		d.want("alerts", d.rows(outbox, nil), dueSoon)
		return measured
	}
	few, many := cost(100, 50), cost(1000, 500)
	for what, rows := range few {
		if many[what] != rows || rows == 0 {
			t.Errorf("%s: %d rows are touched with ten times as many, and %d without", what, many[what], rows)
		}
	}
	if n, most := few["some is due"], 20*dueSoon; n > most {
		t.Errorf("%d alerts touch %d rows, want %d at most", dueSoon, n, most)
	}
}
