package market_test

import (
	"encoding/binary"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/markettest"
	"github.com/lienstream/lienstream/topics"
)

// history is random logs of a market of deals: listed, edited, bid on, funded, settled, with their credits.
func history(n int) []*topics.Log {
	const openDeals = 2000
	rng := rand.New(rand.NewPCG(1, 2))
	vault := markettest.ABI("DealVault")
	var logs []*topics.Log
	emit := func(event string, args ...any) {
		e := vault.Events[event]
		log := &topics.Log{Address: markettest.Deployment.DealVault, Topics: []common.Hash{e.ID}}
		for i, in := range e.Inputs {
			word := make([]byte, 32)
			switch v := args[i].(type) {
			case uint64:
				binary.BigEndian.PutUint64(word[24:], v)
			case common.Address:
				copy(word[12:], v[:])
			}
			if in.Indexed {
				log.Topics = append(log.Topics, common.Hash(word))
			} else {
				log.Data = append(log.Data, word...)
			}
		}
		logs = append(logs, log)
	}
	account := func() common.Address { return common.BigToAddress(big.NewInt(int64(1000 + rng.IntN(2000)))) }
	token, usdg := common.HexToAddress("0x5707c"), common.HexToAddress("0x05d6")
	type deal struct {
		id, cap          uint64
		borrower, lender common.Address
	}
	var listed, funded []deal
	var ids, bids, now uint64
	const week = 604_800
	take := func(from *[]deal) deal {
		i := rng.IntN(len(*from))
		d := (*from)[i]
		(*from)[i] = (*from)[len(*from)-1]
		*from = (*from)[:len(*from)-1]
		return d
	}
	for len(logs) < n {
		now++
		switch p := rng.IntN(100); {
		case len(listed) < 10 || len(listed) < openDeals && p < 24:
			ids++
			d := deal{ids, 1000 + rng.Uint64N(1<<40), account(), common.Address{}}
			listed = append(listed, d)
			emit("DealListed", d.id, d.borrower, token, uint64(0), uint64(0), rng.Uint64N(1<<60), d.cap, d.cap/2, uint64(week), uint64(0), now, uint64(100), uint64(7))
		case p < 36:
			d := listed[rng.IntN(len(listed))]
			emit("DealTermsUpdated", d.id, d.cap, d.cap/2, uint64(week), uint64(0), uint64(7))
		case p < 70:
			bids++
			d := listed[rng.IntN(len(listed))]
			emit("BidPlaced", d.id, bids, account(), d.cap/2, now+week, now, uint64(7))
		case p < 86:
			d := take(&listed)
			d.lender = account()
			funded = append(funded, d)
			price := d.cap/2 + rng.Uint64N(d.cap/2)
			emit("DealFunded", d.id, d.lender, uint64(0), price, price/100, price-price/100, now, now+week, now+week, uint64(7))
			emit("Credited", d.borrower, usdg, d.id, uint64(0), price-price/100, uint64(0))
			emit("Credited", common.HexToAddress("0xfee"), usdg, d.id, uint64(0), price/100, uint64(5))
		case len(funded) > 0:
			d := take(&funded)
			emit("DealReclaimed", d.id, d.borrower, d.lender, d.cap, now)
			emit("Credited", d.lender, usdg, d.id, uint64(0), d.cap, uint64(2))
			emit("Credited", d.borrower, token, d.id, uint64(1), uint64(5), uint64(3))
		}
	}
	return logs
}

// BenchmarkApply is what a log costs a task beside the broker: its rows, messages, changelog entries and
// Pebble, in the 16 partitions of a backfill that commits every 20,000 logs.
func BenchmarkApply(b *testing.B) {
	const (
		partitions = 16
		perBlock   = 400
		perCommit  = 50
	)
	logs := history(300_000)
	decoder := contracts.NewDecoder(markettest.Deployment)
	of := make([]int32, len(logs))
	for i, log := range logs {
		of[i] = topics.Partition(decoder.Decode(log.Address, log.Topics, log.Data).Entity().Key(), partitions)
	}
	app := market.New(decoder, zap.NewNop(), nil)
	for b.Loop() {
		stores := make([]*state.Store, partitions)
		overlays := make([]*state.Overlay, partitions)
		for p := range stores {
			var err error
			if stores[p], err = state.Open(state.Options{Dir: "state", Tables: app.Tables(), FS: vfs.NewMem()}); err != nil {
				b.Fatal(err)
			}
			overlays[p] = stores[p].NewOverlay()
		}
		var entries, bytes int
		for i, log := range logs {
			if i%perBlock == 0 {
				number := uint64(i/perBlock + 1)
				for p, o := range overlays {
					if number%perCommit == 0 {
						entries, bytes = commit(b, stores[p], o, number, entries, bytes)
						overlays[p] = stores[p].NewOverlay()
					}
					overlays[p].Begin(topics.BlockRef{Number: number, Timestamp: number}, false)
				}
			}
			log.LogIndex = uint32(i % perBlock)
			if err := app.Apply(overlays[of[i]], log); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(entries)/float64(len(logs)), "entries/log")
		b.ReportMetric(float64(bytes)/float64(len(logs)), "changelog-B/log")
		for _, s := range stores {
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(logs)), "ns/log")
}

func commit(b *testing.B, s *state.Store, o *state.Overlay, number uint64, entries, bytes int) (int, int) {
	err := o.Rows(func(r state.Row) error {
		if e := r.Table.Entity; e != nil && r.Value != nil {
			_, err := e.Encode(nil, r.Value, topics.BlockRef{Number: number})
			return err
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	o.Entries(func(key, value []byte) { entries, bytes = entries+1, bytes+len(key)+len(value) })
	if err := s.Commit(o, []byte("meta")); err != nil {
		b.Fatal(err)
	}
	return entries, bytes
}
