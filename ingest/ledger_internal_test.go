package ingest

import (
	"maps"
	"reflect"
	"runtime"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// TestLedgerParts: for any balances, the parts of a ledger have every share once, in order, and survive their
// encoding.
func TestLedgerParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 300).Draw(t, "shares")
		n := rapid.SampledFrom([]int{0, 1, 7, size - 1, size, size + 1, 2*size + 3}).Draw(t, "holders")
		l := &ledger{token: common.Address{1}, origin: common.Hash{2}, held: held{}}
		for i := range n {
			l.held[tokenOf(uint64(i)*0x9e3779b97f4a7c15)] = *uint256.NewInt(uint64(i + 1))
		}
		all := maps.Clone(l.held) // its shares are taken
		at := topics.BlockRef{Number: 7, Hash: common.Hash{3}, Timestamp: 8}
		parts := l.parts(at, 0, size)
		var last common.Address
		shares := 0
		for i, part := range parts {
			raw, err := topics.DecodeRaw(topics.AppendRaw(nil, part))
			if err != nil {
				t.Fatal(err)
			}
			got := raw.(*topics.Ledger)
			since := uint64(0)
			if len(parts) > 1 {
				since = 7
			}
			if got.Block != at || got.Token != l.token || got.First != l.origin || got.Fault != "" || int(got.Part) != i || int(got.Parts) != len(parts) || got.Since != since || len(got.Shares) > size {
				t.Fatalf("part %d of %d is %+v", i, len(parts), got)
			}
			for _, s := range got.Shares {
				if s.Account.Cmp(last) <= 0 || all[s.Account] != s.Amount {
					t.Fatalf("%s has %s after %s", s.Account, s.Amount.Dec(), last)
				}
				last = s.Account
			}
			shares += len(got.Shares)
		}
		if shares != n {
			t.Fatalf("%d shares of %d", shares, n)
		}
		again := (&ledger{token: l.token, origin: l.origin, held: all}).parts(at, len(parts), rapid.IntRange(1, 300).Draw(t, "shares, when it is read again"))
		if !reflect.DeepEqual(again, parts) || sumOf(again) != sumOf(parts) {
			t.Fatalf("read again, with other shares, it has %d parts, or others", len(again))
		}
		if len(parts) > 1 {
			part := parts[len(parts)/2]
			part.Shares[0].Amount.AddUint64(&part.Shares[0].Amount, 1)
			if sumOf(again) == sumOf(parts) {
				t.Fatal("another ledger has the same sum")
			}
		}
	})
}

// TestLedgersAtOnce: the ledgers that come at the same time are bounded together. One that does not fit beside the
// others has a fault and no shares; once they have come there is room for others.
func TestLedgersAtOnce(t *testing.T) {
	in := &Ingester{cfg: DefaultConfig(), log: zap.NewNop(), metrics: newMetrics(prometheus.NewRegistry(), &board{})}
	large := topics.MaxHolders / in.cfg.LedgerShares
	parts := func(n int) []*topics.Ledger {
		all := make([]*topics.Ledger, n)
		for i := range all {
			all[i] = &topics.Ledger{Block: topics.BlockRef{Number: 5, Hash: common.Hash{5}}, Token: tokenOf(9), Parts: uint32(n)}
		}
		return all
	}
	f := &followed{since: map[common.Address]joined{}, parts: map[common.Address][]*topics.Ledger{}}
	f.spread(tokenOf(1), topics.BlockRef{Number: 5, Hash: common.Hash{5}}, parts(large))
	for _, test := range []struct {
		block uint64
		parts []int
		want  []int
	}{
		{6, []int{large, 2, 1}, []int{large, 1, 1}},
		{6, []int{large - 1, 2, 1}, []int{large - 1, 1, 1}},
		{5 + uint64(large) - 1, []int{large + 1}, []int{1}},
		{5 + uint64(large), []int{large + 1, large - 1}, []int{large + 1, large - 1}},
	} {
		underWay := f.underWay(test.block)
		for i, n := range test.parts {
			got := in.room(parts(n), &underWay)
			if len(got) != test.want[i] || n > 1 && (got[0].Fault == faultAtOnce) != (len(got) == 1) || got[0].Token != tokenOf(9) || got[0].Block.Number != 5 {
				t.Errorf("block %d: of %d parts %d come, want %d: %+v", test.block, n, len(got), test.want[i], got[0])
			}
		}
	}
}

// TestLedgerHoldsNoMore: while it is summed up a ledger has no more accounts in memory than its bound.
func TestLedgerHoldsNoMore(t *testing.T) {
	token := common.Address{1}
	l := &ledger{decoder: contracts.NewDecoder(contracts.Deployment{}), token: token, held: held{}}
	for i := range uint64(topics.MaxHolders) {
		l.held[tokenOf(i)] = *uint256.NewInt(1)
	}
	l.supply.SetUint64(topics.MaxHolders)
	give := func(from, to common.Address) {
		l.add(&topics.Log{Address: token, Data: common.LeftPadBytes([]byte{1}, 32), Topics: []common.Hash{
			contracts.TransferTopic(), common.BytesToHash(from[:]), common.BytesToHash(to[:]),
		}}, &follow.Header{})
	}
	give(tokenOf(0), tokenOf(topics.MaxHolders)) // one comes, one goes
	if l.fault != "" || len(l.held) != topics.MaxHolders {
		t.Fatalf("%d accounts, fault %q", len(l.held), l.fault)
	}
	give(common.Address{}, tokenOf(topics.MaxHolders+1))
	if l.fault != faultTooMany {
		t.Errorf("%d accounts, fault %q", len(l.held), l.fault)
	}
}

// BenchmarkMillionHolders is what a ledger of a million holders takes while it is summed up and cut into parts, and afterwards.
func BenchmarkMillionHolders(b *testing.B) {
	const holders = 1_000_000
	token := common.Address{1}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse) / (1 << 20)
	}
	runtime.GC()
	before, peak, after := heap(), 0.0, 0.0
	for b.Loop() {
		l := &ledger{decoder: contracts.NewDecoder(contracts.Deployment{}), token: token, held: held{}}
		log := &topics.Log{Address: token, Data: common.LeftPadBytes([]byte{1}, 32), Topics: []common.Hash{contracts.TransferTopic(), {}, {}}}
		for n := range uint64(holders) {
			to := tokenOf(n * 0x9e3779b97f4a7c15)
			log.Topics[2] = common.BytesToHash(to[:])
			if l.add(log, &follow.Header{}); n%50_000 == 0 {
				peak = max(peak, heap())
			}
		}
		parts := l.parts(topics.BlockRef{}, 0, DefaultConfig().LedgerShares)
		peak = max(peak, heap())
		runtime.GC()
		if after = heap(); l.fault != "" || len(parts) != 245 {
			b.Fatal(l.fault, len(parts), "parts")
		}
		runtime.KeepAlive(parts)
	}
	b.ReportMetric(peak-before, "MiB-peak")
	b.ReportMetric(after-before, "MiB-kept")
}
