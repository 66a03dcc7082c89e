package notifier_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// On the in-process chain an hour passes with each block, and reorgs are as deep as they may be.
const (
	perBlock  = time.Hour
	safeAfter = 24 // blocks
	blocks    = 330

	idleBlocks = 120 // after which the market's actors have acted: they repay and claim before the grace period ends
)

// onChain is the in-process chain with the market on it, the ingester, the facts and the notifier, in this process.
type onChain struct {
	*chain
	node     *devchain.Chain
	market   *devchain.Market
	scenario *devchain.Scenario
	ends     map[int64]map[common.Hash]bool // by deal: the blocks that it was ever seen to end in
}

func newOnChain(t *testing.T, seed uint64) *onChain {
	w := &onChain{chain: newTopicsOf(t, cmp.Or(os.Getenv("LIENSTREAM_BROKER"), "kfake"), safeAfter, topics.Catalogue{ChainID: devchain.DefaultChainID, Partitions: 4}), ends: map[int64]map[common.Hash]bool{}}
	var err error
	w.node, err = devchain.New(devchain.Config{Seed: seed, SafeBlocks: safeAfter, FinalizedBlocks: 2 * safeAfter})
	check(t, err)
	t.Cleanup(func() { check(t, w.node.Close()) })
	w.market, err = devchain.Deploy(t.Context(), w.node, devchain.MarketConfig{Seed: seed, NodeModules: "../../contracts/node_modules"})
	check(t, err)
	w.scenario, err = devchain.NewScenario(w.market, devchain.ScenarioConfig{
		Seed: seed, TimePerBlock: perBlock, Reorgs: true, ReorgEvery: 12, MaxReorgDepth: safeAfter - 1,
	})
	check(t, err)
	beside := w.follow(w.market.Deployment)
	cfg := ingest.DefaultConfig()
	cfg.Deployment, cfg.Kafka, cfg.Partitions = w.market.Deployment, w.cfg, w.cat.Partitions
	cfg.PollBackup, cfg.FinalizedEvery = 20*time.Millisecond, 4*time.Millisecond // time flies: the safe block is to be known of each
	cfg.RPC.Endpoints = []rpc.Endpoint{{URL: w.node.HTTP(), WS: w.node.WS(), Name: "node"}}
	in, err := ingest.New(cfg, zap.NewNop(), prometheus.NewRegistry())
	check(t, err)
	beside(func(ctx context.Context) {
		if err := in.Run(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	return w
}

// step mines a block, or a reorg, and waits until the facts have all of it.
func (w *onChain) step() *types.Header {
	w.t.Helper()
	_, err := w.scenario.Step(w.t.Context())
	check(w.t, err)
	return w.seen()
}

// idle mines a block in which nothing happens.
func (w *onChain) idle() {
	w.t.Helper()
	head, err := w.node.Client().HeaderByNumber(w.t.Context(), nil)
	check(w.t, err)
	_, err = w.node.Mine(w.t.Context(), head.Time+uint64(perBlock/time.Second), nil)
	check(w.t, err)
	w.seen()
}

// seen waits until the facts have all of the head.
func (w *onChain) seen() *types.Header {
	w.t.Helper()
	head, err := w.node.Client().HeaderByNumber(w.t.Context(), nil)
	check(w.t, err)
	polltest.Within(w.t, time.Minute, func() error {
		all := w.source.Watermarks()
		for _, m := range all {
			if m.At.Hash != head.Hash() {
				return fmt.Errorf("the facts of partition %d are at block %d %s, the head is %d %s", m.Partition, m.At.Number, m.At.Hash, head.Number, head.Hash())
			}
		}
		if len(all) != int(w.cat.Partitions) {
			return fmt.Errorf("the facts have %d partitions", len(all))
		}
		return nil
	})
	recent := new(big.Int).SetUint64(head.Number.Uint64() - min(head.Number.Uint64(), safeAfter))
	logs, err := w.node.Client().FilterLogs(w.t.Context(), ethereum.FilterQuery{FromBlock: recent, Addresses: []common.Address{w.market.Deployment.DealVault}})
	check(w.t, err)
	decoder := contracts.NewDecoder(w.market.Deployment)
	for _, log := range logs {
		if id, ok := endOf(decoder.Decode(log.Address, log.Topics, log.Data)); ok {
			if w.ends[id] == nil {
				w.ends[id] = map[common.Hash]bool{}
			}
			w.ends[id][log.BlockHash] = true
		}
	}
	return head
}

// endOf is the deal that an event ends.
func endOf(event contracts.Event) (id int64, ok bool) {
	switch e := event.(type) {
	case *contracts.DealReclaimed:
		return int64(e.DealID.Uint64()), true
	case *contracts.DealClaimed:
		return int64(e.DealID.Uint64()), true
	}
	return 0, false
}

// history is what the chain says in the end.
type history struct {
	deals   []*deal
	ended   map[int64]uint64  // deal: the block
	opened  map[uint64]bool   // epochs
	reached map[string]bool   // budgets that were all but reserved
	numbers map[uint64]uint64 // of blocks, by time
	times   map[uint64]uint64 // of blocks, by number
}

func (w *onChain) history() *history {
	w.t.Helper()
	h := &history{ended: map[int64]uint64{}, opened: map[uint64]bool{}, reached: map[string]bool{}, numbers: map[uint64]uint64{}, times: map[uint64]uint64{}}
	client, decoder := w.node.Client(), contracts.NewDecoder(w.market.Deployment)
	last, err := client.BlockNumber(w.t.Context())
	check(w.t, err)
	for n := range last + 1 {
		head, err := client.HeaderByNumber(w.t.Context(), new(big.Int).SetUint64(n))
		check(w.t, err)
		h.times[n], h.numbers[head.Time] = head.Time, n
	}
	logs, err := client.FilterLogs(w.t.Context(), ethereum.FilterQuery{Addresses: []common.Address{w.market.Deployment.DealVault, w.market.Deployment.EpochController}})
	check(w.t, err)
	budgets, borrowers := map[uint64]*contracts.EpochOpened{}, map[string]common.Address{}
	for _, log := range logs {
		event := decoder.Decode(log.Address, log.Topics, log.Data)
		if id, ok := endOf(event); ok {
			h.ended[id] = log.BlockNumber
		}
		switch e := event.(type) {
		case *contracts.DealListed:
			borrowers[e.DealID.Dec()] = e.Borrower
		case *contracts.DealFunded:
			h.deals = append(h.deals, &deal{int64(e.DealID.Uint64()), borrowers[e.DealID.Dec()], e.Lender, e.FundedAt, e.Expiry, e.GraceEnd})
		case *contracts.EpochOpened:
			budgets[uint64(e.N)], h.opened[uint64(e.N)] = e, true
		case *contracts.EpochReserved:
			whole := budgets[uint64(e.N)].DealBudget21.ToBig()
			if uint64(e.Term) == 7*24*hour {
				whole = budgets[uint64(e.N)].DealBudget7.ToBig()
			}
			for _, percent := range []int64{90, 100} {
				most, is := new(big.Int).Mul(whole, big.NewInt(percent)), new(big.Int).Mul(e.ReservedAfter.ToBig(), big.NewInt(100))
				if is.Cmp(most) >= 0 {
					h.reached[fmt.Sprint("budget", percent, " ", e.N, " ", e.Term)] = true
				}
			}
		}
	}
	return h
}

// fired is what was published, in the order of each partition.
func (w *onChain) fired() (all []topics.Alert) {
	w.t.Helper()
	topic, _ := w.cat.Find(topics.KindEvent, topics.FamilyAlert)
	for p := range w.cat.Partitions {
		var part []topics.Alert
		check(w.t, kafka.ReadBack(w.t.Context(), w.cfg, topic.Name(), p, 0, func(r *kafka.Record) bool {
			a := readAlert(r.Value)
			if id := a.ID(); common.Hash(r.Key) != id {
				w.t.Errorf("the key of %+v is %x", a, r.Key)
			}
			part = append(part, a)
			return true
		}))
		slices.Reverse(part)
		all = append(all, part...)
	}
	return all
}

// readAlert reads a record of evt.alert by its schema.
func readAlert(value []byte) (a topics.Alert) {
	value = value[topics.WireHeaderBytes+common.HashLength:]
	a.Wallet, value = common.Address(value[:common.AddressLength]), value[common.AddressLength:]
	for _, s := range []*string{&a.Channel, &a.Kind, &a.DealID, &a.Role} {
		n, size := binary.Varint(value)
		*s, value = string(value[size:size+int(n)]), value[size+int(n):]
	}
	for _, v := range []*uint64{&a.Due, &a.FiredAt, &a.Expiry, &a.GraceEnd, &a.Epoch, &a.Term} {
		n, size := binary.Varint(value)
		*v, value = uint64(n), value[size:]
	}
	return a
}

// moment is when a party of a deal is due to be told.
type moment struct {
	kind string
	due  uint64
}

// momentsOf are those of a deal, in order, after its funding.
func momentsOf(d *deal) (all []moment) {
	for _, m := range []moment{
		{"t48", d.expiry - 48*hour},
		{"t24", d.expiry - 24*hour},
		{"t6", d.expiry - 6*hour},
		{"t1", d.expiry - hour},
		{"expiry", d.expiry},
		{"graceEnd", d.graceEnd},
	} {
		if m.due > d.fundedAt {
			all = append(all, m)
		}
	}
	return all
}

// ticksOf are the times that the notifier was told of, by which it fires.
func (w *onChain) ticksOf() (all []uint64) {
	w.t.Helper()
	check(w.t, kafka.ReadBack(w.t.Context(), w.cfg, w.cat.Commands(topics.AppNotifier), 0, 0, func(r *kafka.Record) bool {
		var cmd notifier.Command
		check(w.t, json.Unmarshal(r.Value[1:len(r.Value)-1], &cmd))
		if cmd.Tick != nil && cmd.Tick.From == 0 {
			all = append(all, cmd.Tick.Time)
		}
		return true
	}))
	slices.Sort(all)
	return slices.Compact(all)
}

// settled waits until the notifier has applied all that it was told.
func (w *onChain) settled() {
	w.t.Helper()
	for p := range w.cat.Partitions {
		var last int64
		check(w.t, kafka.ReadBack(w.t.Context(), w.cfg, w.cat.Commands(topics.AppNotifier), p, 1, func(r *kafka.Record) bool {
			last = r.Offset
			return false
		}))
		polltest.Until(w.t, "the notifier has applied it", func() bool {
			return slices.ContainsFunc(w.chain.node.Watermarks(), func(m read.Watermark) bool { return m.Partition == p && m.At.Number > uint64(last) })
		})
	}
}

// TestChain: the real contracts on the in-process chain, with time that flies and reorgs as deep as they may be. Every
// fired alert is true of the final chain, and is fired once, by the time of a safe block, for the nearest threshold.
// Every alert that was due, and true for long enough, is fired by then. LIENSTREAM_SEED plays another market, of which
// less may happen than is wanted here.
func TestChain(t *testing.T) {
	t.Parallel()
	seed := uint64(4513095276143676674)
	if n, err := strconv.ParseUint(os.Getenv("LIENSTREAM_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	w := newOnChain(t, seed)
	told := map[common.Address]bool{}
	var since uint64
	reorgs, highest := 0, uint64(0)
	for n := range blocks {
		if head := w.step(); head.Number.Uint64() <= highest {
			reorgs++
		} else {
			highest = head.Number.Uint64()
		}
		if n == blocks/8 {
			for _, d := range w.history().deals {
				for _, wallet := range []common.Address{d.borrower, d.lender} {
					if !told[wallet] {
						told[wallet] = true
						w.subscribe(wallet, notifier.Email, 1, notifier.Kinds...)
					}
				}
			}
			head, err := w.node.Client().HeaderByNumber(t.Context(), nil)
			check(t, err)
			since = head.Time
		}
	}
	for range idleBlocks {
		w.idle()
	}
	w.settled()
	w.judge(w.history(), w.ticksOf(), told, since)
	if reorgs < 5 || len(told) < 3 {
		t.Errorf("%d reorgs, %d wallets", reorgs, len(told))
	}
}

// judge compares what was fired with the chain.
func (w *onChain) judge(h *history, ticks []uint64, told map[common.Address]bool, since uint64) {
	t := w.t
	deals := map[string]*deal{}
	for _, d := range h.deals {
		deals[fmt.Sprint(d.id)] = d
	}
	came := map[common.Hash]bool{}
	kinds := map[string]int{}
	last := map[common.Address]uint64{}
	of := map[string][]uint64{} // wallet and deal: when it was told
	for _, a := range w.fired() {
		id := a.ID()
		if came[id] {
			t.Errorf("fired twice: %+v", a)
		}
		came[id] = true
		kinds[a.Kind]++
		if !slices.Contains(ticks, a.FiredAt) || a.Due > a.FiredAt || a.FiredAt < last[a.Wallet] || !told[a.Wallet] {
			t.Errorf("not in its time, after one of %d, or for nobody: %+v", last[a.Wallet], a)
		}
		last[a.Wallet] = a.FiredAt
		if a.DealID == "" {
			if a.Kind == "epoch" && !h.opened[a.Epoch] || a.Kind != "epoch" && !h.reached[fmt.Sprint(a.Kind, " ", a.Epoch, " ", a.Term)] {
				t.Errorf("untrue: %+v", a)
			}
			continue
		}
		d := deals[a.DealID]
		if d == nil || a.Expiry != d.expiry || a.GraceEnd != d.graceEnd || a.Role == "borrower" && a.Wallet != d.borrower || a.Role == "lender" && a.Wallet != d.lender {
			t.Errorf("of no such deal: %+v", a)
			continue
		}
		nearest := moment{}
		for _, m := range momentsOf(d) {
			if m.due <= a.FiredAt {
				nearest = m
			}
		}
		if nearest != (moment{a.Kind, a.Due}) {
			t.Errorf("%+v, but nearest is %+v", a, nearest)
		}
		if end := h.ended[d.id]; end != 0 && h.times[end] <= a.FiredAt {
			t.Errorf("fired after the deal's end at %d: %+v", h.times[end], a)
		}
		of[fmt.Sprint(a.Wallet, d.id)] = append(of[fmt.Sprint(a.Wallet, d.id)], a.FiredAt)
	}
	// An end is known before it is safe, and so is one that a reorg takes back.
	const known = safeAfter + 20
	due := 0
	for _, d := range h.deals {
		end := h.ended[d.id]
		if len(w.ends[d.id]) > 1 || end == 0 && len(w.ends[d.id]) > 0 {
			continue // it is not known when what was known
		}
		for i := 1; i+1 < len(ticks); i++ {
			from, to := max(ticks[i-1], d.fundedAt), ticks[i]
			if from < since || end != 0 && end < h.numbers[to]+known ||
				!slices.ContainsFunc(momentsOf(d), func(m moment) bool { return m.due > from && m.due <= to }) {
				continue
			}
			for _, wallet := range []common.Address{d.borrower, d.lender} {
				if !told[wallet] {
					continue
				}
				if due++; !slices.Contains(of[fmt.Sprint(wallet, d.id)], to) {
					t.Errorf("deal %d: %s was to be told at %d, and was at %v; it ended in block %d", d.id, wallet, to, of[fmt.Sprint(wallet, d.id)], end)
				}
			}
		}
	}
	t.Logf("%d alerts: %v; %d were due for sure; %d ticks", len(came), kinds, due, len(ticks))
	for stage := range notifier.ToConfirm {
		if kinds[stage.String()] == 0 {
			t.Errorf("no %s, to judge by", stage)
		}
	}
	if due < 5 {
		t.Errorf("%d were due, which is too few to judge by", due)
	}
}
