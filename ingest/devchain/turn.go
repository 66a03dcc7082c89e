package devchain

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"
)

// turn is the planning of one block: what the actors know, what time it will be, and what somebody already
// does in this block, so that not two try to fund the same deal.
type turn struct {
	market *Market
	model  *model
	random *rand.Rand
	cfg    ScenarioConfig
	number uint64 // of the block
	now    uint64
	absent func(common.Address) bool // signers who may send nothing new in this block
	taken  map[thing]bool
	shut   map[common.Address]bool // tokens and the vault, by the owner, in this block
	only   *common.Address         // nil: anybody may act
	calm   bool                    // little happens
	fee    uint16                  // of what is listed in this block, in basis points

	accepted bid // by the last acceptBid
}

// thing is what only one transaction of a block may act upon.
type thing struct {
	kind byte
	id   uint256.Int
}

func dealThing(id uint256.Int) thing     { return thing{'d', id} }
func bidThing(id uint256.Int) thing      { return thing{'b', id} }
func positionThing(id uint256.Int) thing { return thing{'p', id} }
func dripThing(id uint256.Int) thing     { return thing{'r', id} }

func creditThing(account, asset common.Address) thing {
	var id uint256.Int
	id.SetBytes(append(asset[8:20:20], account[:]...)) // 12 bytes of an asset tell it from the others
	return thing{'c', id}
}

// take claims a thing for this block, if it is free.
func (t *turn) take(th thing) bool {
	if t.taken[th] {
		return false
	}
	t.taken[th] = true
	return true
}

// action is one kind of thing that actors do. plan finds somebody who can do it and something to do it
// with; false means that nobody can at the moment.
type action struct {
	name   string
	weight int
	plan   func(*turn) (call, bool)
}

// plan fills a block: what the owner of the contracts does first, then what the actors like.
func (s *Scenario) plan(block *played) error {
	t := &turn{
		market: s.market, model: s.model, random: s.random, cfg: s.cfg, number: s.head.Number + 1, now: block.timestamp,
		taken:  make(map[thing]bool),
		fee:    s.model.fee,
		shut:   make(map[common.Address]bool),
		calm:   s.cfg.CalmAfter > 0 && s.head.Number >= s.cfg.CalmAfter,
		absent: func(a common.Address) bool { return len(s.replay) > 0 && s.faithful[a] },
	}
	calls := t.ownerCalls()
	for range t.appetite() {
		if c, ok := t.choose(s.actions); ok {
			calls = append(calls, t.multicall(c, s.actions))
		}
	}
	if !t.calm && t.oneIn(8) || t.oneIn(50) {
		calls = append(calls, t.errand()...)
	}
	nonces := make(map[common.Address]uint64)
	for _, transaction := range block.sent {
		nonces[transaction.sender]++
	}
	for _, c := range calls {
		sender := c.from.signer
		tx, err := c.sign(s.market.backend.Traits().ChainID, s.model.nonces[sender]+nonces[sender])
		if err != nil {
			return err
		}
		nonces[sender]++
		block.sent = append(block.sent, sent{sender: sender, tx: tx, label: c.label})
	}
	return nil
}

// appetite is how many transactions the actors try: the configured number on average, now and then none.
func (t *turn) appetite() int {
	if t.random.IntN(20) == 0 {
		return 0
	}
	n := t.cfg.TxsPerBlock
	if t.calm {
		n = (n + 4) / 5
	}
	return n/2 + t.random.IntN(n+1)
}

// choose draws actions by weight until one can be done.
func (t *turn) choose(actions []action) (call, bool) {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	const attempts = 8
	for range attempts {
		draw := t.random.IntN(total)
		for _, a := range actions {
			if draw -= a.weight; draw < 0 {
				if c, ok := a.plan(t); ok {
					return c, true
				}
				break
			}
		}
	}
	return call{}, false
}

// oneIn is true once in n times.
func (t *turn) oneIn(n int) bool { return t.random.IntN(n) == 0 }

// between is a number of [low, high].
func (t *turn) between(low, high int64) int64 { return low + t.random.Int64N(high-low+1) }

// after is a timestamp so far ahead.
func (t *turn) after(low, high time.Duration) uint64 {
	return t.now + uint64(t.between(int64(low/time.Second), int64(high/time.Second)))
}

// actor is the actor with this address, if there is one and it may act.
func (t *turn) actor(address common.Address) (account, bool) {
	a, ok := t.market.byAddress[address]
	return a, ok && t.mayAct(a)
}

func (t *turn) mayAct(a account) bool {
	return !t.absent(a.signer) && (t.only == nil || a.address == *t.only)
}

// someone is an actor who is not one of these.
func (t *turn) someone(but ...common.Address) (account, bool) {
	a := pick(t, t.market.actors, func(a *account) bool {
		return !slices.Contains(but, a.address) && t.mayAct(*a)
	})
	if a == nil {
		return account{}, false
	}
	return *a, true
}

// recipient is mostly the account itself, else any other.
func (t *turn) recipient(a account) common.Address {
	if t.oneIn(4) {
		return t.market.actors[t.random.IntN(len(t.market.actors))].address
	}
	return a.address
}

// pick is one of the elements that will do, nil when there is none. It is the first from a random place
// on, which favours elements after a run of others; nobody minds.
func pick[T any](t *turn, from []T, will func(*T) bool) *T {
	if len(from) == 0 {
		return nil
	}
	start := t.random.IntN(len(from))
	for i := range from {
		if e := &from[(start+i)%len(from)]; will(e) {
			return e
		}
	}
	return nil
}

// usable says whether tokens can be moved.
func (t *turn) usable(tokens ...common.Address) bool {
	for _, token := range tokens {
		if t.model.paused[token] || t.shut[token] {
			return false
		}
	}
	return true
}

// trading says whether the vault takes new deals and lenders.
func (t *turn) trading() bool { return t.usable(t.market.vault.address) }

// pool is a pool by its ID.
func (t *turn) pool(id common.Hash) *pool {
	for i := range t.market.pools {
		if t.market.pools[i].id == id {
			return &t.market.pools[i]
		}
	}
	return nil
}

// listable are the ERC20s that the registry lets in and that can be moved.
func (t *turn) listable() []token {
	var tokens []token
	for _, c := range t.market.collateral() {
		if asset := t.model.assets[c.address]; asset.Allowed && t.usable(c.address) {
			tokens = append(tokens, c)
		}
	}
	return tokens
}

// fits says whether the registry lets so much of a token into one more deal.
func (t *turn) fits(token common.Address, amount *uint256.Int) bool {
	asset, open := t.model.assets[token], t.model.openRaw[token]
	open.Add(&open, amount)
	return asset.Allowed && amount.Cmp(&asset.MinAmount) >= 0 && amount.Cmp(&asset.MaxDealRaw) <= 0 && open.Cmp(&asset.MaxOpenRaw) <= 0
}

// usdg is a raw amount of dollars and cents.
func usdg(cents int64) *big.Int { return new(big.Int).Mul(big.NewInt(cents), big.NewInt(10_000)) }

func toUint256(v *big.Int) *uint256.Int {
	u, _ := uint256.FromBig(v) // what actors choose fits
	return u
}

func bigTime(t uint64) *big.Int { return new(big.Int).SetUint64(t) }
