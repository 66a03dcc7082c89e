package agent

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// pages are answers from the index without their evidence, by their request, for as long as both the chain's head and the
// index stay where they were: many ask for the same.
//
// Invariant: they are all of one head, and take at most maxPages bytes.
type pages struct {
	mu    sync.Mutex
	head  common.Hash
	bytes int
	found map[string]indexedBody
}

type indexedBody struct {
	at   topics.BlockRef // of the index
	body []byte          // up to the evidence, which is last
}

const maxPages = 16 << 20

func pageKey(req *httpapi.Request) string { return req.HTTP.URL.Path + "?" + req.HTTP.URL.RawQuery }

// writeSame writes what was answered to the same request at the same blocks, if it was.
func (a *Agent) writeSame(req *httpapi.Request, res *httpapi.Response, head chain.Block) (bool, error) {
	a.pages.mu.Lock()
	found, ok := a.pages.found[pageKey(req)]
	ok = ok && a.pages.head == head.Hash
	a.pages.mu.Unlock()
	if !ok || !a.index.Current(found.at, nil) {
		return false, nil
	}
	return true, a.writeWithEvidence(res, found.body, head)
}

// writeIndexed writes an answer from the index, whose last field is its evidence.
func (a *Agent) writeIndexed(req *httpapi.Request, res *httpapi.Response, head chain.Block, at topics.BlockRef, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	body = body[:bytes.LastIndex(body, evidenceField)]
	a.pages.put(pageKey(req), head.Hash, indexedBody{at, body})
	return a.writeWithEvidence(res, body, head)
}

var evidenceField = []byte(`,"evidence":`)

func (a *Agent) writeWithEvidence(res *httpapi.Response, body []byte, head chain.Block) error {
	evidence, err := json.Marshal(a.evidence(head))
	if err != nil {
		return err
	}
	res.Body = append(res.Body, body...)
	res.Body = append(res.Body, evidenceField...)
	res.Body = append(append(res.Body, evidence...), '}')
	return nil
}

func (p *pages) put(key string, head common.Hash, v indexedBody) {
	size := len(key) + len(v.body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.head != head || p.bytes+size > maxPages {
		p.head, p.bytes, p.found = head, 0, map[string]indexedBody{}
	}
	if size <= maxPages {
		p.bytes += size // one that replaces another counts twice, until the next head
		p.found[key] = v
	}
}
