package simulation

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// telegramHost is where alerts are sent to, in the runs in which every party of a deal asks for them.
const telegramHost = "telegram"

// What processors read from their disks in those runs.
const (
	notifyKeys    = "1:1111111111111111111111111111111111111111111111111111111111111111"
	telegramToken = "1:token"
)

// funding is a deal as it was funded in a block.
type funding struct {
	deal                       string
	borrower, lender           common.Address
	fundedAt, expiry, graceEnd uint64
}

// stages are the moments of a deal that its parties are told of, in order of time.
var stages = []struct {
	kind   string
	before uint64 // seconds before the expiry
}{{"t48", 48 * 3600}, {"t24", 24 * 3600}, {"t6", 6 * 3600}, {"t1", 3600}, {"expiry", 0}, {"graceEnd", 0}}

// due is when a stage of a deal is.
func (f *funding) due(stage int) uint64 {
	if stages[stage].kind == "graceEnd" {
		return f.graceEnd
	}
	return f.expiry - min(f.expiry, stages[stage].before)
}

// parties are who is told.
func (f *funding) parties() []common.Address {
	return slices.Compact([]common.Address{f.borrower, f.lender})
}

// alert is what a wallet may be told of.
type alert struct {
	*funding
	wallet common.Address
	stage  int
}

// id names it in its message.
func (a alert) id() string {
	of := topics.Alert{Wallet: a.wallet, Channel: notifier.Telegram.String(), Kind: stages[a.stage].kind, DealID: a.deal, Due: a.due(a.stage)}
	id := of.ID()
	return fmt.Sprintf("%x", id[:16])
}

func (a alert) String() string {
	return fmt.Sprintf("%s of deal %s, due at %d, for %s", stages[a.stage].kind, a.deal, a.due(a.stage), a.wallet)
}

// ledger is what the logs of a recording say of funded deals, by the contracts' events alone.
type ledger struct {
	funded  map[common.Hash][]*funding // by the block that they were funded in
	ended   map[common.Hash][]string   // the deals that were reclaimed or claimed in it
	alerts  map[string]alert           // whatever may ever be sent, by its ID
	wallets []common.Address           // of all parties
}

func ledgerOf(rec *recording) *ledger {
	l := &ledger{funded: map[common.Hash][]*funding{}, ended: map[common.Hash][]string{}, alerts: map[string]alert{}}
	borrowers := map[string]common.Address{}
	decoder := contracts.NewDecoder(rec.deployment)
	for _, s := range rec.steps { // a deal is listed before it is funded
		for _, hash := range s.added {
			for _, log := range rec.blocks[hash].logs {
				switch e := decoder.Decode(log.Address, log.Topics, log.Data).(type) {
				case *contracts.DealListed:
					borrowers[hash.Hex()+e.DealID.Dec()] = e.Borrower
				case *contracts.DealFunded:
					id := e.DealID.Dec()
					f := &funding{deal: id, borrower: rec.borrower(borrowers, hash, id), lender: e.Lender, fundedAt: e.FundedAt, expiry: e.Expiry, graceEnd: e.GraceEnd}
					l.funded[hash] = append(l.funded[hash], f)
					for _, wallet := range f.parties() {
						if !slices.Contains(l.wallets, wallet) {
							l.wallets = append(l.wallets, wallet)
						}
						for stage := range stages {
							a := alert{f, wallet, stage}
							l.alerts[a.id()] = a
						}
					}
				case *contracts.DealReclaimed:
					l.ended[hash] = append(l.ended[hash], e.DealID.Dec())
				case *contracts.DealClaimed:
					l.ended[hash] = append(l.ended[hash], e.DealID.Dec())
				}
			}
		}
	}
	return l
}

// borrower is who listed a deal, in this block or below: another branch may have another deal of that ID.
func (r *recording) borrower(listed map[string]common.Address, hash common.Hash, deal string) common.Address {
	for b := r.blocks[hash]; b != nil; b = r.blocks[hash] {
		if who, is := listed[hash.Hex()+deal]; is {
			return who
		}
		hash = b.header.ParentHash
	}
	return common.Address{}
}

// open are the funded deals as of the chain's head, and since when ended ones are.
func (n *node) open(l *ledger) (open map[string]*funding, ended map[string]time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	open, ended = map[string]*funding{}, map[string]time.Time{}
	for _, hash := range n.canonical {
		for _, f := range l.funded[hash] {
			open[f.deal] = f
			delete(ended, f.deal)
		}
		for _, deal := range l.ended[hash] {
			delete(open, deal)
			ended[deal] = n.shown[hash]
		}
	}
	return open, ended
}

// telegram is the Bot API. It takes every message that comes whole.
type telegram struct {
	*run
	ledger *ledger

	tmu   sync.Mutex
	came  map[string]time.Time // by the alert's ID: when it came first
	fails int                  // messages that are to be answered by an error
}

// ServeHTTP implements http.Handler.
func (m *telegram) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		return // half a message, of who was killed
	}
	text := r.FormValue("text")
	m.judge(text[strings.LastIndexByte(text, ' ')+1:], r.FormValue("chat_id"), text)
	m.tmu.Lock()
	fails := m.fails > 0
	if fails {
		m.fails--
	}
	m.tmu.Unlock()
	if fails {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	_, _ = io.WriteString(w, `{"ok":true,"result":{"message_id":1,"date":1,"chat":{"id":1,"type":"private"}}}`)
}

// failing has the next messages answered by an error, though they have come.
func (m *telegram) failing(messages int) {
	m.tmu.Lock()
	defer m.tmu.Unlock()
	m.fails = messages
}

// Bounds of the laws about alerts, in virtual time.
const (
	tickBlocks  = 15                // by which the notifier's time is behind what is final, at the most
	endedWithin = 5 * time.Second   // after which nobody is told of a deal that has ended, where nothing is broken
	onceWithin  = 5 * time.Second   // of an alert, in which a fault may be why it comes again
	alertWithin = 180 * time.Second // until what is due has come: who was killed is waited for for 33 s, and what failed thrice for 70 s
	finalWithin = 3 * time.Second   // in which an ingester learns what is final
	skewWithin  = 2 * furthest      // by which hosts whose clocks are apart take a time for another
)

// judge judges an alert that has come. It is one that the logs of a block of the chain make due by the time of what is final, its chat
// is the wallet's, and its text says what it is of; nothing is broken: it has not come before, and its deal is open.
func (m *telegram) judge(id, chat, text string) {
	a, known := m.ledger.alerts[id]
	if !known {
		m.found("alert of nothing", "%s", id)
		return
	}
	now := time.Now()
	m.story.tell(telegramHost, "ALERT", a.String())
	if final := m.chain.timeBelowFinal(0); a.due(a.stage) > final {
		m.found("alert too early", "%v: what is final is at %d", a, final)
	}
	if of := m.chain.fundingOf(a); of == nil { // days pass before it is due: no reorg is so deep
		m.found("alert of a funding that was reverted", "%v", a)
	} else if wrong := (alert{of, a.wallet, a.stage}).wrong(m.ledger, chat, text); wrong != "" {
		m.found("alert says something else", "%v: %s: chat %s: %s", a, wrong, chat, text)
	}
	m.tmu.Lock()
	first, again := m.came[id]
	if !again {
		m.came[id] = now
	}
	m.tmu.Unlock()
	if again && m.unbroken(first) {
		m.found("alert comes again", "%v: it came %v before, and nothing was broken", a, now.Sub(first))
	}
	if _, ended := m.chain.open(m.ledger); m.quiet() {
		if at, has := ended[a.deal]; has && now.Sub(at) > endedWithin {
			m.found("alert of a deal that has ended", "%v: it ended %v before", a, now.Sub(at))
		}
	}
}

// unbroken reports whether nothing was broken when an alert came, nor until its result must have been noted.
func (m *telegram) unbroken(came time.Time) bool {
	m.rmu.Lock()
	defer m.rmu.Unlock()
	return !slices.ContainsFunc(m.spells, func(s spell) bool {
		return s.from.Before(came.Add(onceWithin)) && (s.until.IsZero() || s.until.Add(warmAfter).After(came))
	})
}

// missing is an alert that is due at a time of the chain, of a deal that is open, and has not come; nor has a later one
// of that deal, which takes the place of those before.
func (m *telegram) missing(at uint64) (lacks alert, is bool) {
	open, _ := m.chain.open(m.ledger)
	m.tmu.Lock()
	defer m.tmu.Unlock()
	for _, f := range open {
		last := -1
		for stage := range stages {
			if due := f.due(stage); due <= at && due > f.fundedAt {
				last = stage
			}
		}
		for _, wallet := range f.parties() {
			came := last < 0
			for stage := max(last, 0); stage < len(stages) && !came; stage++ {
				_, came = m.came[alert{f, wallet, stage}.id()]
			}
			if !came {
				return alert{f, wallet, last}, true
			}
		}
	}
	return alert{}, false
}

// judgeMissing waits until whatever is due as of a final block has come. Nobody may read the chain for alerts while the embedded
// broker has their group stuck, so that freeing it is waited for again.
func (m *telegram) judgeMissing(ctx context.Context) {
	at, began := m.chain.timeBelowFinal(tickBlocks), time.Now()
	lacks, is := m.awaitDue(at)
	if is && m.freed(ctx, began) {
		lacks, is = m.awaitDue(at)
	}
	if is {
		m.found("alert does not come", "%v, as of %d", lacks, at)
	}
	m.tmu.Lock()
	came := len(m.came)
	m.tmu.Unlock()
	m.rmu.Lock()
	defer m.rmu.Unlock()
	m.result.alerts = came
}

// awaitDue waits for whatever is due at a time of the chain, and returns what has not come within its time. What is final is told
// with a block, so that some more must come.
func (m *telegram) awaitDue(at uint64) (lacks alert, is bool) {
	within := alertWithin
	if m.skews != nil {
		within += skewWithin
	}
	more := 4
	for end := time.Now().Add(within); ; time.Sleep(finalWithin) {
		if more > 0 && m.chain.step() {
			more--
		}
		if lacks, is = m.missing(at); !is || time.Now().After(end) {
			return lacks, is
		}
	}
}

// startTelegram has every party of a deal ask for alerts, and takes them.
func (r *run) startTelegram(ctx context.Context) error {
	l, err := r.net.listen(telegramHost + ":80")
	if err != nil {
		return err
	}
	r.telegram = &telegram{run: r, ledger: r.chain.rec.ledger, came: map[string]time.Time{}}
	r.bot = &http.Server{Handler: r.telegram, ReadHeaderTimeout: time.Minute}
	go func() { _ = r.bot.Serve(l) }() // until close
	keys, err := notifier.ParseKeys(notifyKeys)
	if err != nil {
		return err
	}
	producer, err := kafka.NewProducer(r.kafka(), "wallets", kafka.ProducerOptions{})
	if err != nil {
		return err
	}
	defer producer.Close()
	var prefs notifier.Prefs
	for _, k := range []notifier.Kind{notifier.T48, notifier.T24, notifier.T6, notifier.T1, notifier.Expiry} {
		prefs = prefs.With(k, true)
	}
	for i, wallet := range r.telegram.ledger.wallets {
		sealed, err := keys.Seal(wallet, notifier.Telegram, fmt.Sprint(firstChat+i))
		if err != nil {
			return err
		}
		cmd := notifier.Command{Subscribe: &notifier.Subscribe{Wallet: wallet, Channel: notifier.Telegram, Sealed: sealed, Mask: "m", Prefs: prefs, Unix: 1}}
		rec, err := cmd.Record(r.cat, wallet)
		if err != nil {
			return err
		}
		if _, err := producer.Send(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

// telegramKinds are the faults of whoever takes alerts.
func telegramKinds() []faultKind {
	return []faultKind{
		{"telegram is away", 3, "", func(_ context.Context, r *run, f fault) error { return r.hold(telegramHost, f.hosts, true, f.lasts) }},
		{"telegram fails", 2, "", func(_ context.Context, r *run, f fault) error {
			r.telegram.failing(1 + rand.New(rand.NewPCG(f.seed, 0)).IntN(3))
			time.Sleep(f.lasts)
			r.telegram.failing(0)
			return nil
		}},
	}
}
