package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/pause"
)

// The registered tokens come from the registry's list or, if no endpoint returns it, from its history. Nothing proves a
// list. So of several endpoints two must name a token, or its AssetSet event must be proved: one endpoint could name
// thousands of others. The history may be long: the session begins without the rest after historyWait, and what is
// found later is added then.

// Limits for the registry's list, which not every provider serves, and for its history before the first block.
const (
	listWait    = 15 * time.Second
	historyWait = 30 * time.Second
)

// tokenSearch is a search in the registry's history.
type tokenSearch struct{ next, to uint64 }

// loadTokens reads the registered tokens as of the last published block. rest is what is left to search; nil: nothing.
func (in *Ingester) loadTokens(ctx context.Context, last topics.BlockRef) (rest *tokenSearch, err error) {
	in.tokens.load(nil, nil)
	if last.Hash == (common.Hash{}) {
		return nil, nil //nolint:nilnil // the topic is empty: the blocks to come register them
	}
	bounded, cancel := context.WithTimeout(ctx, listWait)
	l, listed, err := in.listed(bounded, last.Hash)
	if errors.Is(err, rpc.ErrNoState) || errors.Is(err, rpc.ErrGone) {
		l, listed, err = in.listed(bounded, common.Hash{})
	}
	cancel()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		in.log.Warn("no endpoint returns the registry's list of tokens: reading its history", zap.Error(err))
	}
	in.tokens.load(l.known, l.alone)
	in.log.Info("registered tokens", zap.Int("tokens", len(l.known)), zap.Int("byOneEndpoint", len(l.alone)), zap.Bool("listed", listed))
	if listed && len(l.alone) == 0 && !l.cut {
		return nil, nil //nolint:nilnil // nothing is left to search
	}
	rest = &tokenSearch{next: in.cfg.Deployment.StartBlock, to: last.Number}
	if listed {
		return rest, nil
	}
	bounded, cancel = context.WithTimeout(ctx, historyWait)
	defer cancel()
	if err = in.findTokens(bounded, rest, false); err == nil {
		return nil, nil //nolint:nilnil // nothing is left to search
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	in.log.Warn("the registry's history takes long: going on without the rest of it, multipliers and pauses of some tokens come later",
		zap.Uint64("from", rest.next), zap.Uint64("to", rest.to), zap.Error(err))
	return rest, nil
}

// searchTokens searches the rest of the registry's history beside the session's blocks.
func (in *Ingester) searchTokens(ctx context.Context, rest *tokenSearch) error {
	for wait := maxHold; ; wait = min(2*wait, maxProbeWait) {
		err := in.findTokens(ctx, rest, true)
		if err == nil {
			in.log.Info("the registry's history is read", zap.Int("tokens", in.tokens.count()), zap.Uint64("to", rest.to))
			return nil
		}
		if ctx.Err() == nil {
			in.log.Warn("cannot read the registry's history", zap.Uint64("from", rest.next), zap.Error(err))
		}
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// findTokens adds the tokens of the registry's history, from next on. missed: beside blocks that come in.
func (in *Ingester) findTokens(ctx context.Context, s *tokenSearch, missed bool) error {
	err := in.client.Events(ctx, in.cfg.Deployment.AssetRegistry, assetSet(), s.next, s.to, func(logs []topics.Log, upTo uint64) {
		var all []common.Address
		for i := range logs {
			if len(logs[i].Topics) > 1 {
				all = append(all, common.BytesToAddress(logs[i].Topics[1][12:]))
			}
		}
		in.tokens.proved(all, missed)
		s.next = upTo + 1
	})
	if err != nil {
		return fmt.Errorf("read the history of the registry: %w", err)
	}
	return nil
}

// Bounds of what is read from the registry's list.
const (
	maxListed = 1 << 16 // tokens
	maxAlone  = 256     // tokens that one of several endpoints alone names
)

// tokenList is the registry's list.
type tokenList struct {
	known []common.Address // named by two endpoints, or the only one
	alone []common.Address // by one of several, at most maxAlone of each
	cut   bool             // the rest of a list is missing
}

// listed reads the registry's list page by page; false: it has none. A list that names a token twice, or does not end,
// does not count: nothing proves a response.
func (in *Ingester) listed(ctx context.Context, block common.Hash) (l tokenList, ok bool, err error) {
	const page = 256
	n := len(in.cfg.RPC.Endpoints)
	lists := make([]namedTokens, n)
	for i := range lists {
		lists[i].seen, lists[i].full = map[common.Address]bool{}, true
	}
	named := map[common.Address]int{} // by how many
	for from := uint64(0); ; from += page {
		answers, err := in.client.Opinions(ctx, block, rpc.Call{
			To: in.cfg.Deployment.AssetRegistry, Data: append(contracts.Selector("tokens(uint256,uint256)"), words(from, page)...),
			Gas: 10_000_000, Bytes: (page + 2) * 32,
		})
		if err != nil {
			return l, false, err
		}
		got := make([][]common.Address, n)
		has := make([]bool, n)
		for _, answer := range answers {
			got[answer.By], has[answer.By] = addresses(answer.Data)
		}
		for i := range lists {
			ok = ok || has[i]
			l.cut = l.cut || from > 0 && lists[i].full && !has[i]
			if !lists[i].add(got[i], page, named) {
				in.log.Warn("an endpoint's list of the registry's tokens names one twice, or does not end", zap.String("endpoint", in.cfg.RPC.Endpoints[i].Name), zap.Int("tokens", len(lists[i].all)))
				if n == 1 {
					return l, false, nil
				}
			}
		}
		if n == 1 && l.cut {
			return l, false, nil
		}
		if !more(lists, named) {
			break
		}
	}
	added := map[common.Address]bool{}
	for i := range lists {
		alone := 0
		for _, token := range lists[i].all {
			switch {
			case n > 1 && named[token] == 1:
				if alone++; alone <= maxAlone {
					l.alone = append(l.alone, token)
				}
			case !added[token]:
				added[token] = true
				l.known = append(l.known, token)
			}
		}
	}
	return l, ok, nil
}

// namedTokens is the list of one endpoint, as far as it is read.
type namedTokens struct {
	all  []common.Address
	seen map[common.Address]bool
	full bool // it may go on
}

// add adds a page; false: it names a token twice, or there are too many. Nothing more of the list counts then.
func (l *namedTokens) add(tokens []common.Address, page int, named map[common.Address]int) bool {
	if !l.full {
		return true
	}
	l.full = len(tokens) == page
	for _, token := range tokens {
		if l.seen[token] || len(l.all) == maxListed {
			l.full = false
			return false
		}
		l.seen[token] = true
		l.all = append(l.all, token)
		named[token]++
	}
	return true
}

// more reports whether another page is read: not for one of several endpoints that alone names too many already.
func more(lists []namedTokens, named map[common.Address]int) bool {
	going, alone := 0, 0
	for i := range lists {
		if !lists[i].full {
			continue
		}
		going++
		for _, token := range lists[i].all {
			if named[token] == 1 {
				alone++
			}
		}
	}
	return going > 1 || going == 1 && (len(lists) == 1 || alone <= maxAlone)
}

func words(n ...uint64) []byte {
	var b []byte
	for _, v := range n {
		w := uint256.NewInt(v).Bytes32()
		b = append(b, w[:]...)
	}
	return b
}

// addresses decodes an ABI-encoded array of addresses.
func addresses(answer []byte) ([]common.Address, bool) {
	const word = 32
	if len(answer) < 2*word || len(answer)%word != 0 || !new(uint256.Int).SetBytes(answer[:word]).Eq(uint256.NewInt(word)) {
		return nil, false
	}
	if n := new(uint256.Int).SetBytes(answer[word : 2*word]); !n.Eq(uint256.NewInt(uint64(len(answer)/word - 2))) {
		return nil, false
	}
	var all []common.Address
	for rest := answer[2*word:]; len(rest) > 0; rest = rest[word:] {
		all = append(all, common.BytesToAddress(rest[12:word]))
	}
	return all, true
}
