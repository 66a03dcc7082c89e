package simulation

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// states answer what is asked of the chain's states. While the oracle is asked, go-ethereum does, outside of all bubbles, and
// each answer is kept: runs ask for some of the same, and nothing is awake beside them.
type states struct {
	chain *devchain.Chain // nil: what is kept is all

	mu    sync.Mutex // channels of a bubble must not leave it: one question at a time passes through these
	ask   chan stateQuestion
	said  chan stateAnswer
	asked map[string]stateQuestion // of any block's state
	known map[string]uint32        // where in answers one is; nil: what is kept is all
	once  bool                     // what is asked now is asked of no other block

	// Hundreds of thousands of questions, and few answers. The collector, which runs twice before each run, has nothing to
	// follow in such a map.
	kept    map[stateKey]uint32 // where in answers
	answers []stateAnswer
}

// stateKey is a hash of a question and its block.
type stateKey [16]byte

type stateQuestion struct {
	method string
	params []any
}

// stateAnswer is a result, or an error as nodes tell it.
type stateAnswer struct {
	Result  []byte
	Code    int
	Message string
	Data    any
}

func newStates(ctx context.Context, chain *devchain.Chain) *states {
	s := &states{chain: chain, ask: make(chan stateQuestion), said: make(chan stateAnswer), kept: map[stateKey]uint32{}, asked: map[string]stateQuestion{}, known: map[string]uint32{}}
	ctx = context.WithoutCancel(ctx)
	go func() {
		for q := range s.ask {
			s.said <- askedOf(ctx, chain.Client().Client(), q)
		}
	}()
	return s
}

// close ends go-ethereum.
func (s *states) close() error {
	if s.chain == nil {
		return nil
	}
	close(s.ask)
	err := s.chain.Close()
	s.chain = nil
	return err
}

func askedOf(ctx context.Context, c *rpc.Client, q stateQuestion) stateAnswer {
	var raw json.RawMessage
	err := c.CallContext(ctx, &raw, q.method, q.params...)
	a := stateAnswer{Result: raw}
	if said, ok := errors.AsType[rpc.Error](err); ok {
		a.Code, a.Message = said.ErrorCode(), said.Error()
	} else if err != nil {
		a.Code, a.Message = -32603, err.Error()
	}
	if said, ok := errors.AsType[rpc.DataError](err); ok {
		a.Data = said.ErrorData()
	}
	return a
}

// of is the answer to a question about a block's state. Code never changes.
func (s *states) of(method string, block common.Hash, what ...any) stateAnswer {
	as := block
	if method == "eth_getCode" {
		as = common.Hash{}
	}
	return s.answer(method, block, as, what...)
}

// answer is the answer as of a block, kept as that of another: zero, for one that is the same as of all.
func (s *states) answer(method string, block, as common.Hash, what ...any) stateAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, err := json.Marshal(what)
	if err != nil {
		return stateAnswer{Code: -32602, Message: err.Error()}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %x %s", method, as, text))
	key := stateKey(sum[:])
	if at, is := s.kept[key]; is {
		return s.answers[at]
	}
	if s.chain == nil { // of a branch that the oracle saw none of, say: a service then has no answer
		return stateAnswer{Code: -32000, Message: "missing trie node"}
	}
	if as == block && !s.once {
		s.asked[string(text)] = stateQuestion{method, what}
	}
	s.ask <- stateQuestion{method, append(slices.Clone(what), map[string]any{"blockHash": block})}
	a := <-s.said
	s.keep(key, a)
	return a
}

// alone says that what is asked from now on is, or is not, asked of no other block.
func (s *states) alone(once bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once = once
}

// keep keeps an answer, each once.
func (s *states) keep(key stateKey, a stateAnswer) {
	text := fmt.Sprint(a.Code, a.Message, a.Data, string(a.Result))
	at, is := s.known[text]
	if !is {
		at = uint32(len(s.answers))
		s.known[text], s.answers = at, append(s.answers, a)
	}
	s.kept[key] = at
}

// fill keeps the answers to what was asked of one block as of all others, too: a head of a run may be none of the oracle's, and
// what is read of it ahead of requests depends on those before.
func (s *states) fill(blocks map[common.Hash]*block) {
	for hash := range blocks {
		for _, q := range s.asked {
			s.of(q.method, hash, q.params...)
		}
	}
}

var (
	extsload = contracts.Selector("extsload(bytes32[])")
	wordsAt  = 4 + 2*common.HashLength // of its calldata

	// constants never change, and services ask for them once, or now and then: by the last three they know the contracts.
	constants = [][]byte{contracts.Selector("decimals()"), contracts.Selector("WETH9()"), contracts.Selector("registry()"), contracts.Selector("usdg()"), contracts.Selector("vault()")}
)

// call is the answer to an eth_call. Words of storage are asked for one by one: which of them are asked for together depends on
// what was asked for lately.
func (s *states) call(block common.Hash, args json.RawMessage) stateAnswer {
	var to struct {
		To    common.Address
		Input hexutil.Bytes
	}
	err := json.Unmarshal(args, &to)
	switch {
	case err == nil && slices.ContainsFunc(constants, func(c []byte) bool { return bytes.Equal(to.Input, c) }):
		return s.answer("eth_call", block, common.Hash{}, args)
	case err != nil || !bytes.HasPrefix(to.Input, extsload) || len(to.Input) < wordsAt:
		return s.of("eth_call", block, args)
	}
	slots := to.Input[wordsAt:]
	n := len(slots) / common.HashLength
	words := append(common.LeftPadBytes([]byte{common.HashLength}, common.HashLength), binary.BigEndian.AppendUint64(make([]byte, 24), uint64(n))...)
	for i := range n {
		a := s.of("eth_getStorageAt", block, to.To, common.Hash(slots[i*common.HashLength:][:common.HashLength]))
		var word hexutil.Bytes
		if a.Code != 0 || json.Unmarshal(a.Result, &word) != nil {
			return a
		}
		words = append(words, common.LeftPadBytes(word, common.HashLength)...)
	}
	result, err := json.Marshal(hexutil.Bytes(words))
	if err != nil {
		return stateAnswer{Code: -32603, Message: err.Error()}
	}
	return stateAnswer{Result: result}
}
