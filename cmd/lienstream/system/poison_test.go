package system

import (
	"crypto/ecdsa"
	"encoding/binary"
	"math/big"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
)

// scribe makes any contract on an anvil chain emit any log: for a block, the code at its address is that
// of the contract Scribe, which writes what it is told.
type scribe struct {
	w     *world
	key   *ecdsa.PrivateKey
	code  hexutil.Bytes  // that writes
	at    common.Address // a contract of nobody's that has it for good
	nonce uint64
}

func newScribe(t *testing.T, w *world) *scribe {
	t.Helper()
	key, err := crypto.ToECDSA(crypto.Keccak256([]byte("scribe")))
	if err != nil {
		t.Fatal(err)
	}
	s := &scribe{w: w, key: key}
	s.call(t, nil, "anvil_setBalance", s.sender(), (*hexutil.Big)(new(big.Int).Lsh(big.NewInt(1), 100)))
	code, err := contracts.Bytecode("Scribe")
	if err != nil {
		t.Fatal(err)
	}
	s.at = crypto.CreateAddress(s.sender(), 0)
	s.send(t, nil, code)
	s.call(t, &s.code, "eth_getCode", s.at, "latest")
	return s
}

func (s *scribe) sender() common.Address { return crypto.PubkeyToAddress(s.key.PublicKey) }

func (s *scribe) call(t *testing.T, result any, method string, args ...any) {
	t.Helper()
	if err := s.w.backend.Client().Client().CallContext(t.Context(), result, method, args...); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// send mines a block with one transaction, whose logs the judge is to ignore. Its timestamp does not advance, because
// the scenario would not know.
func (s *scribe) send(t *testing.T, to *common.Address, data []byte) []*types.Log {
	t.Helper()
	id := s.w.backend.Traits().ChainID
	tx, err := types.SignNewTx(s.key, types.LatestSignerForChainID(id), &types.DynamicFeeTx{
		ChainID: id, Nonce: s.nonce, GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(1e10), Gas: 20_000_000, To: to, Data: data,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.nonce++
	s.w.judge.ignored[tx.Hash()] = true
	head, err := s.w.judge.eth.HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	mined, err := s.w.backend.Mine(t.Context(), head.Time, []*types.Transaction{tx})
	if err != nil {
		t.Fatal(err)
	}
	if mined.Receipts[0].Status != types.ReceiptStatusSuccessful {
		t.Fatalf("the scribe's transaction in block %d failed", mined.Number)
	}
	return mined.Logs()
}

// emit lets a contract emit logs, in a block of their own.
func (s *scribe) emit(t *testing.T, contract common.Address, logs ...[]byte) []*types.Log {
	t.Helper()
	var own hexutil.Bytes
	s.call(t, &own, "eth_getCode", contract, "latest")
	s.call(t, nil, "anvil_setCode", contract, s.code)
	var data []byte
	for _, l := range logs {
		data = append(data, l...)
	}
	mined := s.send(t, &contract, data)
	s.call(t, nil, "anvil_setCode", contract, own)
	if len(mined) != len(logs) {
		t.Fatalf("%s emitted %d logs, not %d", contract, len(mined), len(logs))
	}
	return mined
}

// written is a log as the scribe takes it.
func written(topics []common.Hash, data []byte) []byte {
	b := []byte{byte(len(topics))}
	for _, topic := range topics {
		b = append(b, topic[:]...)
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(data))), data...)
}

// malformed are logs that claim to be these events, and are not: too few topics or too many, and data that
// is cut off in the middle of a word, or long.
func malformed(signatures ...string) (logs [][]byte) {
	for i, signature := range signatures {
		id := crypto.Keccak256Hash([]byte(signature))
		for indexed := range 4 {
			logs = append(logs, written(append([]common.Hash{id}, make([]common.Hash, indexed)...), make([]byte, 31)))
		}
		logs = append(logs, written([]common.Hash{id}, make([]byte, 1<<(4+i%10)+1)))
	}
	return append(logs,
		written([]common.Hash{crypto.Keccak256Hash([]byte("Nothing()"))}, []byte("nothing")),
		written(nil, []byte("anonymous")))
}

// signatures are the events in a contract's ABI.
func signatures(t *testing.T, contract string) (all []string) {
	t.Helper()
	for _, e := range contractABI(t, contract).Events {
		all = append(all, e.Sig)
	}
	return all
}

// forger writes what it likes to the topics of a world, in transactions of its own.
type forger struct {
	t         *testing.T
	cfg       kafka.Config
	catalogue topics.Catalogue
	tx        *kafka.Transactor
}

func newForger(t *testing.T, w *world, brokers []string) *forger {
	t.Helper()
	f := &forger{t: t, cfg: brokertest.Config(brokers, "lienstream")}
	f.catalogue = topics.Catalogue{Prefix: f.cfg.Prefix, ChainID: w.market.Deployment.ChainID, Partitions: partitions}
	var err error
	if f.tx, err = kafka.NewTransactor(f.cfg, "forger", kafka.TransactorOptions{}); err == nil {
		t.Cleanup(f.tx.Close)
		err = f.tx.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *forger) write(records ...*kafka.Record) {
	f.t.Helper()
	err := f.tx.Begin()
	if err == nil {
		for _, r := range records {
			f.tx.Produce(f.t.Context(), r)
		}
		err = f.tx.Commit(f.t.Context())
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// former returns the first value of a row in a changelog that has another one by now.
func (f *forger) former(partition int32) *kafka.Record {
	f.t.Helper()
	topic := f.catalogue.Changelog(topics.AppMarket)
	latest := map[string]string{}
	var old *kafka.Record
	err := kafka.ReadBack(f.t.Context(), f.cfg, topic, partition, 0, func(r *kafka.Record) bool {
		if r.Key[0] == 0 || r.Value == nil {
			return true // the engine's own, or a row gone
		}
		value, known := latest[string(r.Key)]
		if !known {
			latest[string(r.Key)] = string(r.Value)
		} else if value != string(r.Value) && len(value) > 64 { // a row, and no undo
			old = &kafka.Record{Topic: topic, Partition: partition, Key: r.Key, Value: r.Value}
		}
		return true
	})
	if err != nil || old == nil {
		f.t.Fatalf("no row of partition %d ever changed: %v", partition, err)
	}
	return old
}

// keeps checks that what was written is still there.
func (f *forger) keeps(written *kafka.Record) {
	f.t.Helper()
	found := false
	err := kafka.ReadBack(f.t.Context(), f.cfg, written.Topic, written.Partition, 0, func(r *kafka.Record) bool {
		found = r.Offset == written.Offset && string(r.Value) == string(written.Value)
		return !found && r.Offset > written.Offset
	})
	if err != nil || !found {
		f.t.Errorf("%s/%d: the record at %d is not kept: %v", written.Topic, written.Partition, written.Offset, err)
	}
}

// says looks for a text in what a node has logged since it started.
func (m *member) says(line string) bool { return strings.Contains(m.output(), line) }
