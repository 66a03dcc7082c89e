package follow

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/ethereum/go-ethereum/common"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/topics"
)

// chain is a toy chain: block i of it has number i. A fork replaces blocks and takes the next letter, so
// that "7b" is block 7 of the first fork.
type chain struct {
	blocks []Block
	fork   byte
	every  uint64 // blocks to a second
}

func newChain(every uint64) *chain {
	c := &chain{fork: 'a', every: every}
	c.extend(1, nil)
	return c
}

func (c *chain) extend(n int, logs map[uint64]int) {
	for range n {
		number := uint64(len(c.blocks))
		b := Block{Header: Header{BlockRef: topics.BlockRef{
			Number: number, Hash: common.BytesToHash([]byte{c.fork, byte(number >> 8), byte(number)}), Timestamp: number / c.every,
		}}}
		if number > 0 {
			b.Parent = c.blocks[number-1].Hash
		}
		for i := range logs[number] {
			b.Logs = append(b.Logs, &topics.Log{Block: b.BlockRef, LogIndex: uint32(i)})
		}
		c.blocks = append(c.blocks, b)
	}
}

// reorg takes the blocks above number back and lays n others on it.
func (c *chain) reorg(above uint64, n int, logs map[uint64]int) {
	c.blocks = c.blocks[: above+1 : above+1]
	c.fork++
	c.extend(n, logs)
}

func (c *chain) head() Header { return c.blocks[len(c.blocks)-1].Header }

// answer is what an honest node answers now; false when it does not know the blocks.
func (c *chain) answer(f Fetch) ([]Block, bool) {
	if f.To >= uint64(len(c.blocks)) {
		return nil, false
	}
	got := append([]Block(nil), c.blocks[f.From:f.To+1]...)
	for i := range got {
		if f.Kind == Logs && got[i].Hash != f.Headers[i].Hash {
			return nil, false
		}
		if f.Kind == Headers {
			got[i].Logs = nil
		}
	}
	return got, true
}

// topic replays batches as a reader of the raw topic would, and holds every rule of it.
type topic struct {
	blocks    []Block
	finalized uint64
}

func (t *topic) apply(b Batch) error {
	for _, r := range b.Reverts {
		top := len(t.blocks) - 1
		if top < 1 || t.blocks[top].Hash != r.Block.Hash || t.blocks[top-1].Hash != r.Head.Hash {
			return fmt.Errorf("revert %s to %s does not take back the last barrier", name(r.Block), name(r.Head))
		}
		if r.Block.Number <= t.finalized {
			return fmt.Errorf("revert %s at or below finalized %d", name(r.Block), t.finalized)
		}
		t.blocks = t.blocks[:top]
	}
	if len(b.Blocks) == 0 {
		return fmt.Errorf("a batch without a barrier")
	}
	for _, block := range b.Blocks {
		if n := len(t.blocks); n > 0 && block.Number <= t.blocks[n-1].Number {
			return fmt.Errorf("block %s after %s", name(block.BlockRef), name(t.blocks[n-1].BlockRef))
		}
		t.blocks = append(t.blocks, block)
	}
	if b.Finalized < t.finalized {
		return fmt.Errorf("finalized fell from %d to %d", t.finalized, b.Finalized)
	}
	t.finalized = b.Finalized
	return nil
}

// barriers is what an ingester reads back: from the newest down to one at or below finalized.
func (t *topic) barriers() []topics.BlockRef {
	from := len(t.blocks)
	for from > 0 {
		from--
		if t.blocks[from].Number <= t.finalized {
			break
		}
	}
	var refs []topics.BlockRef
	for _, b := range t.blocks[from:] {
		refs = append(refs, b.BlockRef)
	}
	return refs
}

// machine continues from a topic.
func machine(start, window uint64, from *topic) *Machine {
	cfg := DefaultConfig()
	cfg.Start, cfg.Window = start, window
	m, err := New(cfg, from.barriers(), from.finalized)
	if err != nil {
		panic(err) // a script has no window
	}
	return m
}

// vote puts a block to the vote, of those who have the chain. False: they have none other.
func vote(t interface{ Fatal(...any) }, m *Machine, c *chain, number uint64) bool {
	if !m.cfg.Votes {
		return false
	}
	if number >= uint64(len(c.blocks)) {
		return true
	}
	changed, err := m.Outvoted(c.blocks[number].Header, c.head())
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// equals compares the topic with the canonical chain: every log, and nothing else.
func (t *topic) equals(c *chain) error {
	var want, got []string
	for _, b := range c.blocks {
		for range b.Logs {
			want = append(want, name(b.BlockRef))
		}
	}
	for _, b := range t.blocks {
		if b.Number >= uint64(len(c.blocks)) || c.blocks[b.Number].Hash != b.Hash {
			return fmt.Errorf("barrier %s is not on the chain", name(b.BlockRef))
		}
		for range b.Logs {
			got = append(got, name(b.BlockRef))
		}
	}
	if w, g := strings.Join(want, " "), strings.Join(got, " "); w != g {
		return fmt.Errorf("chain has logs in [%s], topic in [%s]", w, g)
	}
	return nil
}

func name(r topics.BlockRef) string { return fmt.Sprintf("%d%c", r.Number, r.Hash[29]) }

// TestStories plays the scripts in testdata/stories. Commands:
//
//	chain len=N [logs=(n,…)] [every=blocks to a second]   a new chain
//	mine n=N [logs=(n,…)]                                 blocks on top
//	reorg above=N len=N [logs=(n,…)]                      other blocks above N
//	open [start=N] [window=N]                             a machine on what the topic holds
//	head [number=N] [final=N]                             announce the head, or an older block
//	run [max=N]                                           carry out commands until there are none; publish
//	mark                                                  the tip is due
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		var (
			c   *chain
			m   *Machine
			tp  = &topic{}
			out strings.Builder
		)
		publish := func(mark bool) {
			if due, ok := m.Due(); ok && !vote(t, m, c, due.Number) {
				m.Vouched(due)
			}
			for {
				b, ok := m.Publish(Limits{Records: 4, Bytes: 1 << 20}, mark)
				if !ok {
					return
				}
				fmt.Fprintf(&out, "publish")
				for _, r := range b.Reverts {
					fmt.Fprintf(&out, " -%s", name(r.Block))
				}
				for _, block := range b.Blocks {
					fmt.Fprintf(&out, " %s", name(block.BlockRef))
					if len(block.Logs) > 0 {
						fmt.Fprintf(&out, "(%d)", len(block.Logs))
					}
				}
				fmt.Fprintf(&out, ", finalized %d\n", b.Finalized)
				if err := tp.apply(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out.Reset()
			num := func(key string, def int) int { d.MaybeScanArgs(t, key, &def); return def }
			logs := map[uint64]int{}
			if d.HasArg("logs") {
				for _, arg := range d.CmdArgs {
					for i := range arg.Vals {
						if arg.Key == "logs" {
							var n int
							arg.Scan(t, i, &n)
							logs[uint64(n)]++
						}
					}
				}
			}
			switch d.Cmd {
			case "chain":
				c = newChain(uint64(num("every", 1)))
				c.extend(num("len", 0), logs)
			case "mine":
				c.extend(num("n", 1), logs)
			case "reorg":
				c.reorg(uint64(num("above", 0)), num("len", 1), logs)
			case "open":
				m = machine(uint64(num("start", 1)), uint64(num("window", 4)), tp)
				for _, b := range tp.barriers() {
					fmt.Fprintf(&out, "read back %s\n", name(b))
				}
			case "head":
				h := c.blocks[num("number", len(c.blocks)-1)].Header
				if _, err := m.Announce(h, uint64(num("final", int(h.Number)))); err != nil {
					return err.Error()
				}
			case "mark":
				publish(true)
			case "run":
				for {
					f, ok := m.Next(uint64(num("max", 100)))
					if !ok {
						break
					}
					fmt.Fprintf(&out, "fetch %s\n", f)
					blocks, ok := c.answer(f)
					if !ok {
						fmt.Fprintf(&out, "gone\n")
						m.Distrust()
						publish(false)
						break
					}
					unlinked, err := m.Fetched(f, blocks)
					if err != nil {
						return out.String() + err.Error()
					}
					if unlinked {
						fmt.Fprintf(&out, "does not link\n")
					}
					publish(false)
				}
				fmt.Fprintf(&out, "tip %s\n", name(m.Tip()))
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			return out.String()
		})
	})
}

// TestAnyReorgs: whatever the chain does while fetches are under way, and wherever the ingester is
// started again, the topic ends equal to the canonical chain, and every revert takes back the last
// barrier.
func TestAnyReorgs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 70
		var (
			c       = newChain(10)
			tp      = &topic{}
			m       *Machine
			queue   []Fetch
			flipped = func(label string) bool { return rapid.Bool().Draw(t, label) }
			logs    = func() map[uint64]int {
				l := map[uint64]int{}
				for _, n := range rapid.SliceOfN(rapid.IntRange(0, 70), 0, 8).Draw(t, "logs") {
					l[uint64(len(c.blocks)+n)]++
				}
				return l
			}
		)
		votes := flipped("votes")
		open := func() {
			m, queue = machine(1, window, tp), nil
			m.cfg.Votes = votes
		}
		open()
		answer := func() {
			f := queue[0]
			queue = queue[1:]
			blocks, ok := c.answer(f)
			if !ok {
				m.Distrust()
				return
			}
			if _, err := m.Fetched(f, blocks); err != nil {
				t.Fatal(err)
			}
		}
		publish := func(mark bool) {
			if due, ok := m.Due(); ok && !vote(t, m, c, due.Number) {
				m.Vouched(due)
			}
			for {
				b, ok := m.Publish(Limits{Records: 3, Bytes: 1 << 20}, mark)
				if !ok {
					return
				}
				if err := tp.apply(b); err != nil {
					t.Fatal(err)
				}
			}
		}
		drain := func() {
			if _, err := m.Announce(c.head(), c.head().Number); err != nil {
				t.Fatal(err)
			}
			vote(t, m, c, min(m.Tip().Number, c.head().Number))
			for {
				if f, ok := m.Next(30); ok {
					queue = append(queue, f)
				} else if len(queue) == 0 {
					break
				}
				answer()
				publish(false)
			}
		}
		step := map[string]func(*rapid.T){
			"mine": func(*rapid.T) { c.extend(rapid.IntRange(1, 90).Draw(t, "blocks"), logs()) },
			"reorg": func(*rapid.T) {
				depth := rapid.IntRange(1, 64).Draw(t, "depth")
				above := max(0, len(c.blocks)-1-depth)
				l := logs()
				for n := range l { // logs() counts from the old head
					delete(l, n)
					l[n-uint64(len(c.blocks))+uint64(above)+1]++
				}
				c.reorg(uint64(above), depth+rapid.IntRange(0, 3).Draw(t, "longer"), l)
			},
			"announce": func(*rapid.T) {
				if _, err := m.Announce(c.head(), c.head().Number); err != nil {
					t.Fatal(err)
				}
				if m.Contradicts(c.head()) {
					vote(t, m, c, min(m.Tip().Number, c.head().Number))
				}
			},
			"ask": func(*rapid.T) {
				if f, ok := m.Next(uint64(rapid.IntRange(1, 40).Draw(t, "max"))); ok {
					queue = append(queue, f)
				}
			},
			"answer": func(*rapid.T) {
				if len(queue) > 0 {
					answer()
				}
			},
			"publish": func(*rapid.T) { publish(flipped("mark")) },
			"drain":   func(*rapid.T) { drain() },
			"restart": func(*rapid.T) { open() },
		}
		t.Repeat(step)

		// A last block, so that a head that only shrank is seen; then everything is carried out.
		c.extend(1, nil)
		for range 3 { // what was under way may be obsolete, and be dropped with the head
			drain()
		}
		publish(true)
		if err := tp.equals(c); err != nil {
			t.Fatal(err)
		}
		if last := tp.blocks[len(tp.blocks)-1]; last.Hash != c.head().Hash {
			t.Fatalf("topic ends at %s, chain at %s", name(last.BlockRef), name(c.head().BlockRef))
		}
	})
}

func TestConfigNamesItsFaults(t *testing.T) {
	_, err := New(Config{Start: 1}, nil, 0)
	for _, want := range []string{"reorg window", "blocks that are remembered", "headers at once", "suspicions"} {
		if err == nil || !strings.Contains(err.Error(), want+" must be positive") {
			t.Errorf("%v does not name the %s", err, want)
		}
	}
	cfg := DefaultConfig()
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}

// TestHeadsAreClaims: a head that is low, or contradicts what is known, neither stops a backfill nor drops what is being
// fetched, nor has blocks published that nobody voted on.
func TestHeadsAreClaims(t *testing.T) {
	c := newChain(10)
	c.extend(500, map[uint64]int{10: 1, 20: 1, 30: 1})
	m := machine(1, 4, &topic{})
	m.cfg.Votes = true
	step := func() Fetch {
		t.Helper()
		f, ok := m.Next(20)
		if !ok {
			t.Fatal("nothing is fetched")
		}
		return f
	}
	answer := func(f Fetch) {
		t.Helper()
		before := m.Tip()
		blocks, _ := c.answer(f)
		if unlinked, err := m.Fetched(f, blocks); err != nil || unlinked || m.Tip() == before {
			t.Fatalf("%s came in vain: %v", f, err)
		}
		if b, ok := m.Publish(Limits{Records: 100, Bytes: 1 << 20}, true); ok && b.Blocks[len(b.Blocks)-1].Number > 0 {
			t.Fatalf("block %d is published, and nobody voted on it", b.Blocks[len(b.Blocks)-1].Number)
		}
	}
	announce := func(h Header) {
		t.Helper()
		if _, err := m.Announce(h, 490); err != nil {
			t.Fatal(err)
		}
	}
	announce(c.head())
	answer(step())
	answer(step())
	first, second := step(), step()
	settled := m.Settled()
	rival := c.blocks[m.Tip().Number+1].Header
	rival.Parent, rival.Hash = common.Hash{1}, common.Hash{2}
	for _, h := range []Header{rival, c.blocks[m.Tip().Number].Header, c.blocks[5].Header} {
		announce(h)
		if m.Settled() < settled {
			t.Errorf("a head at %d makes %d of %d be final", h.Number, m.Settled(), settled)
		}
		if f := step(); f.Kind != Range {
			t.Errorf("a head at %d is followed by a %s", h.Number, f)
		}
	}
	if !m.Contradicts(rival) || m.Contradicts(c.blocks[m.Tip().Number].Header) {
		t.Error("it is not known what contradicts")
	}
	answer(first)
	answer(second)
	m.Distrust()
	announce(c.blocks[m.Tip().Number+1].Header) // no other is known
	answer(step())
}

// TestRestartInABackfill: what a former process knew to be final beyond the last barrier is not known any more. A forged block
// there, from the endpoint that is asked first, is voted on before it is published, also if the topic's last barrier has a
// higher number, as it may in topics of older builds.
func TestRestartInABackfill(t *testing.T) {
	for _, beyond := range []uint64{0, 700} {
		t.Run(fmt.Sprint("beyond by ", beyond), func(t *testing.T) {
			cfg := DefaultConfig()
			cfg.Start, cfg.Votes = 1, true
			honest, liar := newChain(10), newChain(10)
			honest.extend(6000, map[uint64]int{100: 1})
			liar.extend(6000, map[uint64]int{100: 1})
			liar.reorg(100, 1000, map[uint64]int{150: 3})
			all := Limits{Records: 10_000, Bytes: 16 << 20}
			topic := &topic{}
			m, err := New(cfg, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			// next fetches from a chain, has what is due vouched for, and publishes.
			next := func(from *chain) {
				t.Helper()
				if _, err := m.Announce(honest.head(), 5000); err != nil {
					t.Fatal(err)
				}
				f, ok := m.Next(64)
				if !ok {
					t.Fatal("nothing to fetch")
				}
				got, _ := from.answer(f)
				if _, err := m.Fetched(f, got); err != nil {
					t.Fatal(err)
				}
				if due, is := m.Due(); is && from == honest {
					m.Vouched(due)
				}
				b, ok := m.Publish(all, false)
				if !ok {
					return
				}
				if last := b.Blocks[len(b.Blocks)-1].Number; b.Finalized > last && beyond == 0 {
					t.Errorf("final up to %d, and the last barrier is %d", b.Finalized, last)
				}
				if err := topic.apply(b); err != nil {
					t.Fatal(err)
				}
			}
			for m.Tip().Number < 1000 {
				next(honest)
			}
			if n := len(topic.blocks); topic.blocks[n-1].Number != 100 {
				t.Fatalf("the last barrier is %d, want 100", topic.blocks[n-1].Number)
			}
			if m, err = New(cfg, topic.barriers(), topic.finalized+beyond); err != nil {
				t.Fatal(err)
			}
			next(liar)
			if n := len(topic.blocks); topic.blocks[n-1].Number != 100 {
				t.Errorf("block %s was published, and nobody but the first vouched for it", name(topic.blocks[n-1].BlockRef))
			}
		})
	}
}

// TestRetreatBetweenBarriers: after a restart only barriers are known. Where most endpoints end at a block that has none, or at
// another one than is known, no more is taken back than what is above the block before it.
func TestRetreatBetweenBarriers(t *testing.T) {
	c := newChain(10)
	c.extend(20, nil)
	var barriers []topics.BlockRef
	for n := 2; n <= 20; n += 3 {
		barriers = append(barriers, c.blocks[n].BlockRef)
	}
	for _, test := range []struct {
		name string
		to   Header
		tip  uint64
	}{
		{"between", c.blocks[19].Header, 17},
		{"another one", Header{BlockRef: topics.BlockRef{Number: 17, Hash: common.Hash{9}}}, 14},
	} {
		m, err := New(Config{Window: 4, MaxWindow: 100, MaxBranch: 4, Suspicions: 3, Votes: true}, barriers, 2)
		if err != nil {
			t.Fatal(err)
		}
		if !m.Retreat(test.to) || m.Tip().Number != test.tip || m.Head() != test.to.Number {
			t.Errorf("%s: the tip is %d and the head %d", test.name, m.Tip().Number, m.Head())
		}
	}
}

// TestRetreat: where most endpoints end below the tip, what is above is taken back, and comes in again as they tell of it.
func TestRetreat(t *testing.T) {
	c, tp := newChain(10), &topic{}
	c.extend(20, map[uint64]int{18: 1, 19: 2, 20: 1})
	m := machine(1, 4, tp)
	m.cfg.Votes = true
	drain := func() {
		t.Helper()
		for {
			if due, ok := m.Due(); ok {
				m.Vouched(due)
			}
			if b, ok := m.Publish(Limits{Records: 100, Bytes: 1 << 20}, true); ok {
				if err := tp.apply(b); err != nil {
					t.Fatal(err)
				}
			}
			f, ok := m.Next(100)
			if !ok {
				return
			}
			blocks, _ := c.answer(f)
			if _, err := m.Fetched(f, blocks); err != nil {
				t.Fatal(err)
			}
		}
	}
	announce := func() {
		t.Helper()
		if _, err := m.Announce(c.head(), c.head().Number); err != nil {
			t.Fatal(err)
		}
	}
	announce()
	drain()
	for _, n := range []uint64{20, m.Floor()} {
		if m.Retreat(c.blocks[n].Header) {
			t.Errorf("the tip is %d, final is %d, and it is taken back to %d", m.Tip().Number, m.Floor(), n)
		}
	}
	all := c.blocks
	c.blocks = all[:19]
	if !m.Retreat(c.head()) {
		t.Fatal("nothing is taken back")
	}
	drain()
	if err := tp.equals(c); err != nil || m.Tip() != c.head().BlockRef {
		t.Fatalf("the tip is %d: %v", m.Tip().Number, err)
	}
	c.blocks = all
	announce()
	drain()
	if err := tp.equals(c); err != nil {
		t.Fatal(err)
	}
}

// TestWeight: what waits is counted by what it takes, or few long logs would be as many as there are.
func TestWeight(t *testing.T) {
	for _, test := range []struct {
		logs, bytes, want int
	}{{0, 0, 0}, {1, 100, 1}, {100, 300, 100}, {1, 1 << 20, 1024}} {
		var b Block
		for range test.logs {
			b.Logs = append(b.Logs, &topics.Log{Data: make([]byte, test.bytes)})
		}
		if got := b.Weight(); got != test.want {
			t.Errorf("%d logs of %d bytes count for %d, want %d", test.logs, test.bytes, got, test.want)
		}
	}
}

// TestNamedBetweenBarriers: a machine that read barriers from the topic does not know the blocks between them. While one
// of those is called final nothing becomes final; a known one called final ends that.
func TestNamedBetweenBarriers(t *testing.T) {
	ref := func(n uint64) topics.BlockRef {
		return topics.BlockRef{Number: n, Hash: common.BytesToHash([]byte{byte(n)})}
	}
	cfg := DefaultConfig()
	cfg.Window = 8
	m, err := New(cfg, []topics.BlockRef{ref(10), ref(50), ref(100)}, 10)
	if err != nil {
		t.Fatal(err)
	}
	link := func(number, final uint64) {
		t.Helper()
		head := Header{BlockRef: ref(number), Parent: ref(number - 1).Hash}
		if _, err := m.Announce(head, final); err != nil {
			t.Fatal(err)
		}
		f, ok := m.Next(10)
		if !ok {
			t.Fatal("nothing to fetch")
		}
		if _, err := m.Fetched(f, []Block{{Header: head}}); err != nil {
			t.Fatal(err)
		}
	}
	m.Names(topics.BlockRef{Number: 60, Hash: common.Hash{1}})
	if link(101, 60); m.Finalized() != 10 {
		t.Errorf("block %d is final, though nothing says that block 60 is of this chain", m.Finalized())
	}
	m.Names(ref(100))
	for n := uint64(102); n <= 108; n++ {
		link(n, 100)
	}
	if m.Finalized() != 100 {
		t.Errorf("block %d is final, want 100", m.Finalized())
	}
}
