package ingest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
)

// TestLaterMark: a topic that a newer build wrote ends the ingester, and says so.
func TestLaterMark(t *testing.T) {
	b := mark{start: 1}.encode()
	b[0] = markVersion + 1
	if _, err := decodeMark(b); !final(err) || !errors.Is(err, topics.ErrLaterSchema) || !strings.Contains(err.Error(), "version 9") {
		t.Errorf("a later version of the filter header: %v", err)
	}
	for _, b := range [][]byte{nil, {0}, {markListed}, {markHashes}, {markRoles}, {markSums}, append([]byte{markHashes}, mark{}.encode()...), append(mark{short: true}.encode(), 1), make([]byte, 30)} {
		if _, err := decodeMark(b); err == nil || final(err) {
			t.Errorf("filter header %x: %v", b, err)
		}
	}
}

// TestMarksTellContractsApart: contracts with the same first bytes, such as vanity addresses, are told apart: added
// ones, one in place of another, and two exchanged. If an earlier build's mark cannot tell them apart, it is refused.
func TestMarksTellContractsApart(t *testing.T) {
	vanity := func(n byte) common.Address { return common.Address{4: n, 19: n} }
	a := func(n byte) common.Address { return common.Address{n, 19: n} }
	before := contracts.Deployment{ChainID: 7, DealVault: a(1), AssetRegistry: a(2), USDG: a(3), PoolManager: vanity(4), PositionManager: a(5), StateView: a(6), V4Quoter: a(7)}
	added, replaced, alike, swapped := before, before, before, before
	added.EpochController, added.RewardDistributor, added.LiquidityStaking, added.Burner = vanity(11), vanity(12), vanity(13), vanity(14)
	added.TKN, added.STKN, added.PoolID = a(15), a(16), common.Hash{1}
	replaced.PoolManager = vanity(44)
	alike.DealVault = vanity(1)
	swapped.DealVault, swapped.AssetRegistry = before.AssetRegistry, before.DealVault
	for _, test := range []struct {
		name          string
		from, to      contracts.Deployment
		format        markFormat
		added, others int
		vague         bool
	}{
		{"the same", before, before, byRole, 0, 0, false},
		{"alike in itself", alike, alike, byRole, 0, 0, false},
		{"added", before, added, byRole, 4, 0, false},
		{"taken away", added, before, byRole, 0, 4, false},
		{"replaced", before, replaced, byRole, 1, 1, false},
		{"swapped", before, swapped, byRole, 2, 2, false},
		{"without roles: the same", before, before, byHash, 0, 0, false},
		{"without roles: added", before, added, byHash, 4, 0, false},
		{"without roles: replaced", before, replaced, byHash, 1, 1, false},
		{"without roles: swapped", before, swapped, byHash, 0, 0, false},
		{"before: the same", before, before, byPrefix, 0, 0, false},
		{"before: alike in itself", alike, alike, byPrefix, 0, 0, true},
		{"before: added", before, added, byPrefix, 0, -4, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			was, err := decodeMark(markBy(test.from, test.format).encode())
			if err != nil {
				t.Fatal(err)
			}
			if vague := was.vague() || markBy(test.to, was.format).vague(); vague != test.vague {
				t.Errorf("vague: %t", vague)
			}
			if added, others := was.added(contracts.NewDecoder(test.to)); len(added) != test.added || others != test.others {
				t.Errorf("%d are added and %d are not there: %v", len(added), others, added)
			}
		})
	}
}

// TestEarlierMark: what an earlier build wrote is read, and compared as it was written.
func TestEarlierMark(t *testing.T) {
	b := common.FromHex("02" + "0000000000000007" + "02" + "00000000" + "01000000" + "01" + "aabbccdd" + "0001" + "0300000000000000000000000000000000000000" + "0000000000000004")
	m, err := decodeMark(b)
	if err != nil || m.format != byPrefix || m.start != 7 || m.followed[common.Address{3}].block != 4 {
		t.Fatalf("%+v, %v", m, err)
	}
	if added, others := m.added(contracts.NewDecoder(contracts.Deployment{DealVault: common.Address{1, 2: 5}, AssetRegistry: common.Address{4: 7}, PoolManager: common.Address{6}})); len(added) != 2 || added[0] != (common.Address{1, 2: 5}) || others != 1 {
		t.Errorf("%v are added, %d are not there", added, others)
	}
	b = common.FromHex("0704" + "0000000000000007" + "00" + "00" + "0001" + "0300000000000000000000000000000000000000" + "0000000000000004" +
		"0300000000000000000000000000000000000000" + strings.Repeat("05", 32) + "00000002")
	m, err = decodeMark(b)
	if j := m.followed[common.Address{3}]; err != nil || m.format != byRole || j.block != 4 || j.parts != 2 || j.sum != (sum{}) || !bytes.Equal(m.encode(), b) {
		t.Fatalf("%+v, %v", m, err)
	}
	b = common.FromHex("0603" + "0000000000000007" + "01" + "f22bb46edf31af85" + "00")
	m, err = decodeMark(b)
	if err != nil || m.format != byHash || m.start != 7 || !bytes.Equal(m.encode(), b) {
		t.Fatalf("%+v, %v", m, err)
	}
	if added, others := m.added(contracts.NewDecoder(contracts.Deployment{DealVault: common.Address{1}, AssetRegistry: common.Address{2}})); len(added) != 1 || added[0] != (common.Address{2}) || others != 0 {
		t.Errorf("%v are added, %d are not there", added, others)
	}
}

// tokenOf is the nth token.
func tokenOf(n uint64) (token common.Address) {
	binary.BigEndian.PutUint64(token[:], n+1)
	return token
}

// TestMarksAreShort: of a thousand followed tokens a transaction costs no more than of none, but for those that change them,
// and one of many.
func TestMarksAreShort(t *testing.T) {
	p := &publisher{filter: markOf(contracts.Deployment{})}
	all := map[common.Address]joined{}
	for n := range uint64(maxFollowed) {
		all[tokenOf(n)] = joined{block: n}
	}
	bare := p.filter
	bare.followed = map[common.Address]joined{}
	none := len(bare.encode())
	const transactions = 4 * listEvery
	size, listed := 0, 0
	for i := range transactions {
		if i == 10 {
			all = map[common.Address]joined{tokenOf(7): {block: 1}, tokenOf(8): {block: 2, hash: common.Hash{1}, parts: 3, sum: sum{2}}, tokenOf(9): {block: 3, asks: true}, tokenOf(10): {block: 3, asks: true, originBlock: 9}}
		}
		header := p.follow(all).mark().Value
		m, err := decodeMark(header)
		if err != nil {
			t.Fatal(err)
		}
		if !m.short {
			listed++
			if !maps.Equal(m.followed, all) {
				t.Errorf("transaction %d names other tokens: %d of %d", i, len(m.followed), len(all))
			}
		}
		if i > 10 {
			size += len(header)
		}
	}
	if listed < 5 || listed > 6 {
		t.Errorf("%d of %d transactions name the tokens, want the first, the one with a change and each of %d", listed, transactions, listEvery)
	}
	if size > transactions*none {
		t.Errorf("%d bytes of headers", size)
	}
}

// TestTokenJoinsAfterAHeartbeat: the first transaction of a session repeats the last barrier. The next one names the token that joins
// with its block, or another session would not follow it.
func TestTokenJoinsAfterAHeartbeat(t *testing.T) {
	client, err := rpc.New(rpc.Config{
		ChainID: 7, Endpoints: []rpc.Endpoint{{URL: "http://127.0.0.1:1"}}, Addresses: []common.Address{{1}},
		Timeout: 1, MaxBody: 1, MaxHeld: 1, MaxRange: 1, MaxBatch: 1, ReceiptsBatch: 1, Parallel: 1, Silence: 1, Proof: rpc.ProofTip,
	}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	in := &Ingester{client: client, metrics: newMetrics(prometheus.NewRegistry(), &board{})}
	position := published{followed: map[common.Address]joined{}}
	p, f := newPublisher(nil, "", 1, contracts.NewDecoder(contracts.Deployment{}), position), in.follow(position.followed)
	p.mark()
	f.join(client, []common.Address{tokenOf(1)}, 2, nil)
	m, err := decodeMark(p.follow(f.upTo(2)).mark().Value)
	if err != nil || m.followed[tokenOf(1)].block != 2 {
		t.Errorf("the transaction of block 2 names %v: %v", m.followed, err)
	}
}

// TestTooManyTokens: no more tokens are followed than the bound, and a metric counts the others. The filter does not
// grow with reorgs.
func TestTooManyTokens(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Deployment = contracts.Deployment{ChainID: 1, AssetRegistry: common.Address{1}}
	client, err := rpc.New(rpc.Config{
		ChainID: 1, Addresses: []common.Address{{1}}, Endpoints: []rpc.Endpoint{{URL: "http://127.0.0.1:1"}}, Timeout: 1, MaxBody: 1, MaxHeld: 1,
		MaxRange: 1, MaxBatch: 1, Parallel: 1, Proof: rpc.ProofTip, ReceiptsBatch: 1, Silence: 1,
	}, zap.NewNop(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	in := &Ingester{cfg: cfg, log: zap.NewNop(), client: client, decoder: contracts.NewDecoder(cfg.Deployment), assetSet: assetSet()}
	in.metrics = newMetrics(prometheus.NewRegistry(), &in.status)
	registry, err := contracts.ABI("AssetRegistry")
	if err != nil {
		t.Fatal(err)
	}
	one := big.NewInt(1)
	data, err := registry.Events["AssetSet"].Inputs.NonIndexed().Pack(uint8(contracts.KindERC20), true, uint8(18), one, one, one, "M", "Meme")
	if err != nil {
		t.Fatal(err)
	}
	set := func(n uint64) *topics.Log {
		token := tokenOf(n)
		return &topics.Log{
			Address: cfg.Deployment.AssetRegistry, Data: data,
			Topics: []common.Hash{assetSet(), common.BytesToHash(token[:]), common.BigToHash(big.NewInt(int64(contracts.LaneMeme)))},
		}
	}
	f := in.follow(map[common.Address]joined{})
	next := uint64(0)
	for block := uint64(1); block <= 3*maxFollowed/100; block++ {
		b := &follow.Block{}
		b.Number = block
		for range 100 {
			b.Logs = append(b.Logs, set(next))
			next++
		}
		f.join(in.client, in.joining(b, f), block, nil)
		if block == 5 {
			f.back(3) // and others come in place of those
		}
		if len(f.since) > maxFollowed || len(f.asked) > maxFollowed {
			t.Fatalf("%d tokens are followed and %d asked for", len(f.since), len(f.asked))
		}
	}
	if n := testutil.ToFloat64(in.metrics.unfollowed); len(f.since) != maxFollowed || n != float64(next)-maxFollowed-300 {
		t.Errorf("%d tokens are followed, %v of %d are not", len(f.since), n, next)
	}
}

// TestABarrierCallsFinalWhatItCovers: a barrier calls no block above its own final or safe: a restart could not
// recover that.
func TestABarrierCallsFinalWhatItCovers(t *testing.T) {
	p := newPublisher(nil, "", 1, contracts.NewDecoder(contracts.Deployment{}), published{last: topics.BlockEnd{Block: topics.BlockRef{Number: 100}, Finalized: 90}})
	for _, test := range []struct{ block, finalized, safe, wantFinalized, wantSafe uint64 }{
		{100, 95, 97, 95, 97},
		{100, 872, 900, 100, 100}, // a backfill
		{120, 80, 0, 90, 0},
		{80, 85, 85, 90, 80}, // after a reorg that a restart missed
	} {
		end := p.covering(topics.BlockEnd{Block: topics.BlockRef{Number: test.block}, Finalized: test.finalized, Safe: test.safe})
		if end.Finalized != test.wantFinalized || end.Safe != test.wantSafe {
			t.Errorf("block %d, final %d, safe %d: the barrier says %d and %d, want %d and %d", test.block, test.finalized, test.safe, end.Finalized, end.Safe, test.wantFinalized, test.wantSafe)
		}
	}
}
