package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics/kafka"
)

// Bounds of the laws, in virtual time.
const (
	healWithin     = 10 * time.Second                            // from the last healing until every serving node answers as of the head
	commitWithin   = 60 * time.Second                            // until the topics hold what the answers say
	ageWithin      = kafka.DefaultSessionTimeout + 2*time.Second // since an answer's block was overtaken, where blocks come: a takeover
	quietAgeWithin = time.Second                                 // the same where nothing is broken
	valueWithin    = 3 * time.Second                             // since a process told of a block, until its values are not of an older one: more than a state may take to be read
	outageWithin   = time.Second                                 // for which a question may be refused, or wait, where one thing is broken
)

// readFrom is a client of a serving node. Half of its questions name the newest block that any client has seen. What is
// refused it asks again, until it is answered.
func (r *run) readFrom(ctx context.Context, host string, rng *rand.Rand, every time.Duration) {
	path, answered, questions := "", true, r.questions()
	for ctx.Err() == nil {
		var atLeast uint64
		if answered {
			path = questions[rng.IntN(len(questions))]
			if sent := r.oracle.sent[r.chain.head()]; r.opt.agent && len(sent) > 0 && rng.IntN(4) == 0 {
				path = sent[rng.IntN(len(sent))].path
			}
			r.rmu.Lock()
			if atLeast = r.newest[classOf(path)] * uint64(rng.IntN(2)); isValue(path) { // which has no minBlock
				atLeast = 0
			}
			r.rmu.Unlock()
		}
		answered = r.ask(ctx, host, path, atLeast, false) || atLeast > 0
		time.Sleep(time.Duration(rng.Int64N(int64(every))))
	}
}

// ask judges an answer. Its block exists, and the oracle gives the same answer as of it. The block is no older than
// atLeast or, where that is 0, than what this process showed before. Once: nobody asks again until it is answered.
func (r *run) ask(ctx context.Context, host, path string, atLeast uint64, once bool) (answered bool) {
	_, answered = r.answer(ctx, host, path, atLeast, once)
	return answered
}

// answer is ask, and what was answered.
func (r *run) answer(ctx context.Context, host, path string, atLeast uint64, once bool) (got reply, answered bool) {
	class := host + classOf(path)
	r.rmu.Lock()
	before, asked := r.shown[class], time.Since(r.began)
	r.rmu.Unlock()
	question := path
	if atLeast > 0 {
		question = withParam(path, fmt.Sprint("minBlock=", atLeast))
	}
	life := r.life(host)
	began, reached := time.Now(), r.headNumber(true) >= atLeast
	a, err := r.get(ctx, host, question)
	same := life == r.life(host)
	r.rmu.Lock()
	ok := err == nil && a.answered()
	if atLeast == 0 && !once && !isValue(path) { // else a node that is behind may refuse
		r.outage(class, host, asked, ok)
	}
	if isValue(path) && ok {
		r.result.values++
	}
	quiet := r.settled && r.isQuiet() && same && ctx.Err() == nil && reached && r.headNumber(true) >= atLeast
	if r.result.requests++; !ok {
		r.result.errors++
	}
	r.rmu.Unlock()
	if !ok {
		if quiet && !isValue(path) && !r.freesNow(ctx) {
			r.found("refused though nothing is broken", "GET %s of %s: %v, %d %.200s", question, host, err, a.status, a.body)
		}
		return a, false
	}
	now := common.HexToHash(a.hash)
	b := r.chain.rec.blocks[now]
	if b == nil && a.status == http.StatusOK && strings.HasPrefix(path, agentPath) && now == (common.Hash{}) {
		r.twoBlocks(host, path, a.body)
	}
	if b == nil {
		if a.status == http.StatusOK && now != (common.Hash{}) && !r.forged.stands(now, r.opt.alone) { // zero: before the first block
			r.found("block that never was", "GET %s of %s: as of block %s %s", question, host, a.number, a.hash)
		}
		return a, true
	}
	at := b.header.Number.Uint64()
	if at < atLeast {
		r.found("older block than asked for", "GET %s of %s: %d as of block %d", question, host, a.status, at)
	}
	// A new process does not know what the last one showed: then only minBlock keeps clients from going back.
	if last := r.chain.rec.blocks[before.block]; last != nil && same && before.life == life && atLeast == 0 && r.chain.isCanonical(before.block) && r.chain.isCanonical(now) {
		if at < last.header.Number.Uint64() {
			r.found("older block after newer", "GET %s of %s: %d as of block %d after %s as of %d",
				question, host, a.status, at, before.what, last.header.Number)
		}
	}
	if a.status == http.StatusOK && atLeast == 0 && !isValue(path) {
		r.aged(ctx, now, began, host, question)
	}
	if strings.HasPrefix(path, valuationPath) && same {
		r.outdated(now, began, host, life, path)
	}
	r.rmu.Lock()
	if !isValue(path) && same && r.chain.isCanonical(now) {
		r.told[host] = append(r.told[host], telling{now, life, time.Now()})
	}
	if same && atLeast == 0 { // an answer for minBlock may be newer than those of others
		r.shown[class] = shownAnswer{now, life, fmt.Sprintf("%d of %v", a.status, asked.Round(time.Millisecond))}
	}
	if r.chain.isCanonical(now) {
		r.newest[classOf(path)] = max(r.newest[classOf(path)], at)
	}
	r.rmu.Unlock()
	want, known := r.oracle.answers[a.hash][path]
	switch {
	case !known:
	case want.status != a.status:
		r.found("other status: "+endpointOf(path), "GET %s of %s at block %s: %d, want %d: %.300s", path, host, a.number, a.status, want.status, a.body)
	case isValue(path) && !strings.HasPrefix(path, preparePath):
		if want.body != digest(a.body) {
			r.found("other answer: "+endpointOf(path), "GET %s of %s at block %s: %.300s", path, host, a.number, a.body)
		}
	case a.status == http.StatusOK && want.body != a.body:
		r.found("other answer: "+endpointOf(path), "GET %s of %s at block %s: %s", path, host, a.number, difference(want.body, a.body))
	}
	return a, true
}

// outage measures how long a question was refused or waited, from when it was first asked until it was answered, by a
// serving node without a fault of its own. The lock is held.
func (r *run) outage(class, host string, asked time.Duration, ok bool) {
	since, out := r.refused[class]
	if !out {
		since = r.began.Add(asked)
	}
	switch {
	case r.busy[host] || r.healed[host].After(since) || r.shown[class] == (shownAnswer{}):
		delete(r.refused, class)
	case !ok:
		r.refused[class] = since
	default:
		if took := time.Since(since); took > r.result.outage {
			r.result.outage = took
			r.result.refused = fmt.Sprintf("%s from %v on", class, since.Sub(r.began).Round(time.Millisecond))
		}
		delete(r.refused, class)
	}
}

// neverAnswered counts what is refused still, when all is healed, as if it were answered now.
func (r *run) neverAnswered(servings []string) {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	for _, host := range servings {
		for class, since := range r.refused {
			if took := time.Since(since); strings.HasPrefix(class, host) && !r.healed[host].After(since) && took > r.result.outage {
				r.result.outage, r.result.refused = took, fmt.Sprintf("%s from %v on, to the end", class, since.Sub(r.began).Round(time.Millisecond))
			}
		}
	}
}

// flowing says whether blocks come, and have for a while, though one thing at a time is broken. rmu is held.
func (r *run) flowing(at time.Time) bool {
	return r.opt.alone && r.dry == 0 && at.Sub(r.flows) > warmAfter
}

// calm says whether nothing happens to a host, nor has for a while. rmu is held.
func (r *run) calm(host string, at time.Time) bool {
	return !r.busy[host] && at.Sub(r.healed[host]) > warmAfter
}

// aged judges how old the block of an answer is. Where the chain, ingesters or brokers are away, answers go on as of the
// last block that there was; whatever else is broken, they follow the chain, and where nothing is, at once.
func (r *run) aged(ctx context.Context, block common.Hash, asked time.Time, host, question string) {
	age := r.chain.age(block, asked)
	r.rmu.Lock()
	within := time.Duration(-1)
	switch {
	case !r.settled:
	case r.isQuiet():
		within = quietAgeWithin
	case r.flowing(asked) && (r.hear[host] || r.calm(host, asked)):
		within = ageWithin
	}
	if within >= 0 {
		r.result.age = max(r.result.age, age)
	}
	r.rmu.Unlock()
	if within >= 0 && age > within && !r.frees(ctx, age) {
		r.found("an answer is old", "GET %s of %s: its block was overtaken %v before, of at most %v", question, host, age, within)
	}
}

// telling is a block that a process has answered as of.
type telling struct {
	block common.Hash
	life  int
	at    time.Time
}

// outdated judges the block of a value. Where the chain cannot be read, a value is refused, and not given as of a block that its
// process knew long before to be overtaken, or to be none of the chain.
func (r *run) outdated(block common.Hash, asked time.Time, host string, life int, question string) {
	r.rmu.Lock()
	all := r.told[host]
	last := -1 // of those that were told long enough before
	for last+1 < len(all) && asked.Sub(all[last+1].at) > valueWithin {
		last++
	}
	all = all[max(last, 0):]
	r.told[host] = all
	r.rmu.Unlock()
	if last < 0 || all[0].life != life || !r.chain.isCanonical(all[0].block) {
		return
	}
	knew := r.chain.rec.blocks[all[0].block].header
	if !r.chain.rec.descends(block, knew) {
		r.found("a value is of an old block", "GET %s of %s: as of %s, though it answered as of block %d %v before", question, host, block, knew.Number, asked.Sub(all[0].at))
	}
}

// isValue reports whether a question is to the valuation service or the agent API: these wait for the chain, too.
func isValue(path string) bool {
	return strings.HasPrefix(path, valuationPath) || strings.HasPrefix(path, agentPath)
}

func withParam(path, param string) string {
	if strings.Contains(path, "?") {
		return path + "&" + param
	}
	return path + "?" + param
}

// endpointOf is a path without what tells it from others of its kind.
func endpointOf(path string) string {
	return "/" + strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == '?' })[0]
}

// classOf is the same for questions whose blocks must not go back from one to another.
func classOf(path string) string {
	if strings.Contains(path, "limit=200") {
		return "lists"
	}
	return path
}

func difference(want, got string) string {
	i := 0
	for i < len(want) && i < len(got) && want[i] == got[i] {
		i++
	}
	around := func(s string) string { return s[max(0, i-60):min(len(s), i+80)] }
	return fmt.Sprintf("byte %d: …%s…, want …%s…", i, around(got), around(want))
}
