package simulation

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// judgeEnd asks one of three of all questions at the end of a run, each of one serving node, and all streams.
func (r *run) judgeEnd(ctx context.Context, servings []string, seed uint64) {
	for i, path := range r.lastQuestions() {
		if at := i + int(seed); at%3 == 0 {
			r.askLast(ctx, servings[at/3%len(servings)], path, r.headNumber(at/6%2 == 0 && !isValue(path)))
		}
	}
	for _, host := range servings {
		err := r.streamTells(ctx, host, r.chain.head().Hex())
		if err != nil && r.freed(ctx, time.Now()) { // only owners know what has changed
			err = r.streamTells(ctx, host, r.chain.head().Hex())
		}
		if err != nil {
			r.found("the stream does not tell of the head", "%s: %v", host, err)
		}
	}
}

// lastQuestions are those that the head of a run's end has an answer to.
func (r *run) lastQuestions() []string {
	all := r.questions()
	if r.opt.agent {
		for _, s := range r.oracle.sent[r.chain.head()] {
			all = append(slices.Clip(all), s.path)
		}
	}
	return all
}

// headNumber is the number of the head, for a question that names it; 0: it names none.
func (r *run) headNumber(named bool) uint64 {
	if !named {
		return 0
	}
	return r.chain.rec.blocks[r.chain.head()].header.Number.Uint64()
}

// answeredWithin is for how long a question may be refused at the end of a run, when all has been well for a while.
const answeredWithin = 2 * time.Second

// askLast is ask at the end of a run: then every question is answered, as of the head. Of a chain's state that the oracle has not seen
// nothing can be said.
func (r *run) askLast(ctx context.Context, host, path string, atLeast uint64) {
	head, question := r.chain.head().Hex(), path
	if atLeast > 0 {
		question = withParam(path, fmt.Sprint("minBlock=", atLeast))
	}
	want, known := r.oracle.answers[head][path]
	for end := time.Now().Add(answeredWithin); known || !isValue(path); time.Sleep(settleEvery) {
		a, err := r.get(ctx, host, question)
		if err == nil && a.answered() && (a.hash == head || a.status != http.StatusOK) && (!known || a.status == want.status) {
			break
		}
		if time.Now().After(end) {
			r.found("no answer in the end: "+endpointOf(path), "GET %s of %s, after %v: %v, %d as of block %s, want %d as of the head: %.200s", question, host, answeredWithin, err, a.status, a.number, want.status, a.body)
			return
		}
	}
	r.ask(ctx, host, path, atLeast, true)
}

// streamTells waits for an event that names a block.
func (r *run) streamTells(ctx context.Context, host, block string) error {
	ctx, cancel := context.WithTimeout(ctx, answeredWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+":80/stream", http.NoBody)
	if err != nil {
		return err
	}
	res, err := r.streams.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), block) {
			return nil
		}
	}
	return fmt.Errorf("%s, and no event names %s: %w", res.Status, block, lines.Err())
}
