package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum/common"
)

// indexOf names what an answer of the agent API has from the index alone: it is kept beside the answer.
const indexOf = "index of "

// fromIndex is an answer of the agent API without what it has from the chain.
func fromIndex(answer map[string]any) string {
	part := map[string]any{}
	for name, v := range answer {
		switch name {
		case "evidence", "checkpoint", "warnings", "usdgCredit":
		default:
			part[name] = v
		}
	}
	text, _ := json.Marshal(part) // it was decoded from JSON
	return digest(string(text))
}

// namedBlock is how the agent API names a block.
type namedBlock struct {
	number, hash, time string
}

func (n namedBlock) String() string { return fmt.Sprintf("%s %s of %s", n.number, n.hash, n.time) }

// blocksOf are an answer of the agent API, the block of what it has from the chain, and that of what it has from the index.
func blocksOf(body string) (answer map[string]any, chain, index namedBlock, lag string, ok bool) {
	d := json.NewDecoder(strings.NewReader(body))
	if d.UseNumber(); d.Decode(&answer) != nil {
		return nil, chain, index, "", false
	}
	e, is := answer["evidence"].(map[string]any)
	c, indexed := answer["checkpoint"].(map[string]any)
	if !is || !indexed {
		return nil, chain, index, "", false
	}
	named := func(m map[string]any, number string) namedBlock {
		return namedBlock{fmt.Sprint(m[number]), fmt.Sprint(m["blockHash"]), fmt.Sprint(m["blockTimestamp"])}
	}
	return answer, named(e, "blockNumber"), named(c, "indexedBlock"), fmt.Sprint(c["lagBlocks"]), true
}

// twoBlocks judges an answer of the agent API whose index is as of another block than the chain's: both exist as it names them,
// one is above the other, and what it has from the index is one node's as of that block.
func (r *run) twoBlocks(host, path, body string) {
	answer, chain, index, lag, ok := blocksOf(body)
	if !ok {
		return
	}
	var heights [2]uint64
	var known [2]*block
	for i, n := range []namedBlock{chain, index} {
		hash := common.HexToHash(n.hash)
		if known[i] = r.chain.rec.blocks[hash]; known[i] == nil {
			if !r.forged.stands(hash, r.opt.alone) {
				r.found("block that never was", "GET %s of %s: as of block %s", path, host, n)
			}
			return
		}
		h := known[i].header
		if heights[i] = h.Number.Uint64(); n.number != fmt.Sprint(h.Number) || n.time != fmt.Sprint(h.Time) {
			r.found("a block is misnamed", "GET %s of %s: block %s is %d of %d", path, host, n, h.Number, h.Time)
		}
	}
	r.rmu.Lock()
	r.result.apart++
	r.rmu.Unlock()
	if want := heights[0] - min(heights[0], heights[1]); lag != fmt.Sprint(want) {
		r.found("a block is misnamed", "GET %s of %s: the index %s lags %s blocks behind %s, want %d", path, host, index, lag, chain, want)
	}
	rec := r.chain.rec
	if !rec.descends(common.HexToHash(chain.hash), known[1].header) && !rec.descends(common.HexToHash(index.hash), known[0].header) {
		r.found("answer of two branches", "GET %s of %s: the chain is at block %s, the index at %s", path, host, chain, index)
	}
	if want, is := r.oracle.answers[index.hash][indexOf+path]; is && want.body != fromIndex(answer) {
		r.found("other answer: "+endpointOf(path), "GET %s of %s, the index at block %s: %.300s", path, host, index, body)
	}
}

// turned reports whether the last step of the chain was a reorg.
func (n *node) turned() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.played < 2 {
		return false
	}
	before := n.rec.steps[n.played-2]
	return n.rec.steps[n.played-1].from < before.from+uint64(len(before.added))
}

// asksAgents has clients ask the agent API while a reorg comes: chain and index may then be at blocks of two branches.
func (r *run) asksAgents(ctx context.Context, wg *sync.WaitGroup, servings []string, rng *rand.Rand) {
	if !r.opt.agent || !r.chain.turned() {
		return
	}
	var indexed []string
	for _, path := range r.oracle.agent {
		if isIndexed(path) {
			indexed = append(indexed, path)
		}
	}
	for range servings {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() { r.burst(ctx, servings, indexed, own) })
	}
}

// isIndexed reports whether the agent API answers a question by the index.
func isIndexed(path string) bool {
	for _, of := range []string{"/v1/assets", "/v1/listings", "/v1/portfolio"} {
		if strings.HasPrefix(path, agentPath+of) {
			return true
		}
	}
	return false
}
