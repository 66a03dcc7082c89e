package ingest

import (
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// TestTokensTellNews: whatever is dropped before it is verified, reverted after it or left unanswered, and whichever blocks
// have logs that require a probe: once all answer, the topic says what the tokens say, and then nothing more.
func TestTokensTellNews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const some = 3
		var (
			all   tokens
			now   = time.Now()
			says  [some]uint64
			chain [][]*topics.Probe // what each verified block has
		)
		for i := range some {
			all.load([]common.Address{{byte(i)}}, nil)
		}
		// fetch is a block above the chain, with the probes that are required and those that are due.
		fetch := func(required []common.Address, whole bool) (told int, verify func()) {
			all.revert(uint64(len(chain)), now)
			ref := topics.BlockRef{Number: uint64(len(chain)) + 1}
			b := []follow.Block{{Header: follow.Header{BlockRef: ref}}}
			var answers []answer
			for i, token := range append(required, all.due(now, now.Add(10*time.Second), required)...) {
				a := answer{Probe: &topics.Probe{Block: ref, Token: token}, required: i < len(required), whole: whole}
				if whole {
					a.UIMultiplier = uint256.NewInt(says[token[0]])
				}
				b[0].Logs, answers = append(b[0].Logs, a.Probe), append(answers, a)
			}
			verified := all.news(b, nil, answers)
			return len(b[0].Logs), func() {
				var has []*topics.Probe
				for _, item := range b[0].Logs {
					has = append(has, item.(*topics.Probe))
				}
				if chain = append(chain, has); verified != nil {
					verified(now)
				}
			}
		}
		for range rapid.IntRange(0, 30).Draw(t, "events") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second, 10 * time.Minute}).Draw(t, "time"))
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				says[rapid.IntRange(0, some-1).Draw(t, "token")] = rapid.Uint64Range(0, 2).Draw(t, "says")
			case 1:
				chain = chain[:rapid.IntRange(max(0, len(chain)-3), len(chain)).Draw(t, "reverted to")]
				all.revert(uint64(len(chain)), now)
			default:
				var required []common.Address
				for i := range some {
					if rapid.IntRange(0, 3).Draw(t, "log") == 0 {
						required = append(required, common.Address{byte(i)})
					}
				}
				_, verify := fetch(required, rapid.Bool().Draw(t, "answers"))
				if rapid.IntRange(0, 2).Draw(t, "kept") > 0 {
					verify()
				}
			}
		}
		now = now.Add(time.Hour)
		_, verify := fetch(nil, true)
		verify()
		for i := range some {
			var last *topics.Probe
			for _, block := range slices.Backward(chain) {
				k := slices.IndexFunc(block, func(p *topics.Probe) bool { return p.Token[0] == byte(i) })
				if k >= 0 {
					last = block[k]
					break
				}
			}
			if last == nil || last.UIMultiplier == nil || last.UIMultiplier.Uint64() != says[i] {
				t.Fatalf("token %d says %d, the topic %v", i, says[i], last)
			}
		}
		now = now.Add(time.Hour)
		if told, _ := fetch(nil, true); told > 0 {
			t.Fatalf("%d tokens are told again", told)
		}
	})
}

// TestTokensOfARevertedBlock: a token is known from the first verified block that sets it until that block is
// reverted; fetches above know it earlier. Tokens known from before the session stay.
func TestTokensOfARevertedBlock(t *testing.T) {
	var all tokens
	now := time.Now()
	old, fresh := common.Address{1}, common.Address{2}
	all.load([]common.Address{old}, nil)
	seen := []tokenMention{{token: old}, {token: fresh}}
	knows := func(block uint64, fetched ...settings) int { return len(all.registered(block, seen, fetched)) }
	fetch := func(block uint64) func(time.Time) {
		ref := topics.BlockRef{Number: block}
		var answers []answer
		for _, m := range seen {
			answers = append(answers, answer{Probe: &topics.Probe{Block: ref, Token: m.token}, required: true})
		}
		return all.news([]follow.Block{{Header: follow.Header{BlockRef: ref}}}, settings{old: block, fresh: block}, answers)
	}
	check := func(what string, is, want int) {
		t.Helper()
		if is != want {
			t.Errorf("%s: %d tokens are known, not %d", what, is, want)
		}
	}
	verify := fetch(5)
	check("while block 5 is fetched", knows(5), 1)
	check("below it", knows(4, settings{fresh: 5}), 1)
	check("above it", knows(6, settings{fresh: 5}), 2)
	verify(now)
	fetch(7)(now)
	check("once it is verified", knows(6), 2)
	all.revert(5, now)
	check("back at block 5", knows(6), 2)
	all.revert(4, now)
	check("back at block 4", knows(6), 1)
}

// TestDueInOrder: of more tokens than a block probes again, those come first that have been due for longest.
func TestDueInOrder(t *testing.T) {
	var all tokens
	now := time.Now()
	const n = 5 * mostAgain
	for i := range n {
		token := common.Address{byte(7 * i), byte(i)}
		all.load([]common.Address{token}, nil)
		all.schedule(all.known[token], now.Add(-time.Duration(i)*time.Second), 0)
	}
	for last := n; last > 0; last -= mostAgain {
		due := all.due(now, now.Add(time.Minute), nil)
		for k, address := range due {
			if i := last - 1 - k; len(due) != mostAgain || address != (common.Address{byte(7 * i), byte(i)}) {
				t.Fatalf("%d are due, the one at %d is %s", len(due), k, address)
			}
		}
	}
}

// TestFailedAmongMany: a token whose probe failed is asked again before long although thousands of others are due, and
// these are still asked. However many there are, a block costs few probes and little time.
func TestFailedAmongMany(t *testing.T) {
	var all tokens
	now := time.Now()
	const n = maxListed - 1
	failing := common.Address{0xff}
	known := []common.Address{failing}
	for i := range n {
		known = append(known, common.BytesToAddress([]byte{byte(i >> 8), byte(i), 1}))
	}
	all.load(known, nil)
	all.schedule(all.known[failing], now, minProbeWait)
	now = now.Add(maxProbeWait + time.Second)
	var took time.Duration
	asked, others := 0, 0
	const blocks = 100
	for block := range uint64(blocks) {
		began := time.Now()
		due := all.due(now, now.Add(10*time.Second), nil)
		took += time.Since(began)
		if len(due) > mostAgain {
			t.Fatalf("%d tokens are probed", len(due))
		}
		ref := topics.BlockRef{Number: block + 1}
		b := []follow.Block{{Header: follow.Header{BlockRef: ref}}}
		var answers []answer
		for _, token := range due {
			answers = append(answers, answer{Probe: &topics.Probe{Block: ref, Token: token}, whole: token != failing})
			if token == failing {
				asked++
			} else {
				others++
			}
		}
		if verified := all.news(b, nil, answers); verified != nil {
			verified(now)
		}
		now = now.Add(12 * time.Second)
	}
	if asked < 8 || others < blocks*mostAgain/2 {
		t.Errorf("in %d blocks the token that fails is asked %d times, the others %d times", blocks, asked, others)
	}
	if each := took / blocks; each > 5*time.Millisecond {
		t.Errorf("a block takes %s", each)
	}
}

// TestNamedByOne: a token that one endpoint alone names is probed after its own log only, until it is proved.
func TestNamedByOne(t *testing.T) {
	var all tokens
	known, alone := common.Address{1}, common.Address{2}
	all.load([]common.Address{known}, []common.Address{known, alone})
	late := time.Now().Add(time.Hour)
	if due := all.due(late, late, nil); !slices.Equal(due, []common.Address{known}) {
		t.Errorf("due are %v", due)
	}
	if has := all.registered(1, []tokenMention{{token: alone}, {token: known}}, nil); len(has) != 2 {
		t.Errorf("probed after their logs are %v", has)
	}
	all.proved([]common.Address{{4}}, false)
	all.proved([]common.Address{alone, known}, true)
	if due := all.due(time.Now(), late, nil); !slices.Equal(due, []common.Address{alone}) {
		t.Errorf("due once it is proved are %v", due)
	}
	all.load([]common.Address{known}, nil)
	if has := all.registered(1, []tokenMention{{token: common.Address{3}}}, nil); len(has) != 0 {
		t.Errorf("never named, and probed: %v", has)
	}
}
