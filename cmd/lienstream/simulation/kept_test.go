package simulation

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/contracts"
)

var oracleFlag = flag.String("sim.oracle", "", "file that the recording and its oracle are read from; it is written if it is not there. Only one build may use it, and builds with a fault put in")

// keptOracle is an oracle and its recording in a file. Most answers are those of the block before.
type keptOracle struct {
	Bodies  []string
	Answers map[string]map[string]keptReply
	Topics  map[int32]map[string]map[string]string
	History history

	Deployment []byte
	Blocks     map[common.Hash]keptBlock
	Steps      []keptStep
	Ends       []int
	Calls      map[string]hexutil.Bytes
	Tokens     []common.Address
	States     []byte // each question's key, and which answer is its
	StateSays  []stateAnswer
}

type keptReply struct {
	Status, Body int
	Number       string
}

type keptBlock struct {
	JSON, Whole, Receipts json.RawMessage
	Logs                  []types.Log
	Txs                   []hexutil.Bytes
}

type keptStep struct {
	From  uint64
	Added []common.Hash
}

// keptState is the size of a question's key and of which answer is its.
const keptState = len(stateKey{}) + 4

// keep writes an oracle to a file that must not exist.
func keep(file string, rec *recording, o *oracle) error {
	var deployment bytes.Buffer
	if err := rec.deployment.Write(&deployment); err != nil {
		return err
	}
	k := keptOracle{
		Answers: map[string]map[string]keptReply{}, Topics: o.topics, History: o.history,
		Deployment: deployment.Bytes(), Blocks: map[common.Hash]keptBlock{}, Ends: rec.ends, Calls: rec.calls, Tokens: rec.tokens, StateSays: rec.states.answers,
	}
	for key, at := range rec.states.kept {
		k.States = binary.BigEndian.AppendUint32(append(k.States, key[:]...), at)
	}
	known := map[string]int{}
	for block, answers := range o.answers {
		k.Answers[block] = map[string]keptReply{}
		for path, r := range answers {
			at, ok := known[r.body]
			if !ok {
				at = len(k.Bodies)
				known[r.body], k.Bodies = at, append(k.Bodies, r.body)
			}
			k.Answers[block][path] = keptReply{r.status, at, r.number}
		}
	}
	for hash, b := range rec.blocks {
		k.Blocks[hash] = keptBlock{b.json, b.whole, b.receipts, b.logs, b.txs}
	}
	for _, s := range rec.steps {
		k.Steps = append(k.Steps, keptStep{s.from, s.added})
	}
	part := fmt.Sprint(file, ".", os.Getpid()) // several processes may begin at once
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	if err := errors.Join(gob.NewEncoder(f).Encode(&k), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// kept reads an oracle and its recording; nil: the file is not there.
func kept(file string) (*recording, *oracle, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	var k keptOracle
	if err := gob.NewDecoder(f).Decode(&k); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	rec := &recording{blocks: map[common.Hash]*block{}, ends: k.Ends, calls: k.Calls, tokens: k.Tokens, states: &states{kept: make(map[stateKey]uint32, len(k.States)/keptState), answers: k.StateSays}}
	for s := range slices.Chunk(k.States, keptState) {
		rec.states.kept[stateKey(s)] = binary.BigEndian.Uint32(s[len(stateKey{}):])
	}
	if rec.deployment, err = contracts.ReadDeployment(bytes.NewReader(k.Deployment)); err != nil {
		return nil, nil, err
	}
	for hash, b := range k.Blocks {
		header := new(types.Header)
		if err := json.Unmarshal(b.JSON, header); err != nil {
			return nil, nil, err
		}
		rec.blocks[hash] = &block{header: header, json: b.JSON, whole: b.Whole, receipts: b.Receipts, logs: b.Logs, txs: b.Txs}
		if err := rec.blocks[hash].encodeLogs(); err != nil {
			return nil, nil, err
		}
	}
	for _, s := range k.Steps {
		rec.steps = append(rec.steps, step{s.From, s.Added})
	}
	rec.ledger = ledgerOf(rec)
	o, err := newOracle(rec)
	if err != nil {
		return nil, nil, err
	}
	o.topics, o.history = k.Topics, k.History
	for block, answers := range k.Answers {
		o.answers[block] = map[string]reply{}
		for path, r := range answers {
			o.answers[block][path] = reply{r.Status, r.Number, block, k.Bodies[r.Body]}
		}
		if err := o.keepMarket(block); err != nil {
			return nil, nil, err
		}
	}
	return rec, o, nil
}
