package devchain

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// model is what the actors know of the market: everything that they may still act on, learned from logs.
//
// Invariants:
//
//  1. It equals the contracts' state after the last applied block, for the things that it holds.
//  2. It holds no settled deal, closed bid, empty credit or finished drip, so its size follows from the
//     number of open things and not from the length of the chain.
//  3. Its slices are sorted by ID: with equal logs and equal random numbers, actors choose the same.
type model struct {
	nonces map[common.Address]uint64

	deals     []deal // LISTED or FUNDED
	bids      []bid  // OPEN
	credits   []credit
	positions []position // not burned
	drips     []drip     // not claimed to the end

	fee     uint16                  // of the vault, in basis points
	paused  map[common.Address]bool // tokens, and the vault
	halted  map[common.Address]bool // stocks whose oracle is paused
	frozen  map[common.Address]bool // accounts, by the dollar
	assets  map[common.Address]contracts.AssetSet
	openRaw map[common.Address]uint256.Int
	ticks   map[common.Hash]int32 // of the pools
	pools   map[common.Hash]contracts.PoolSet

	epoch    contracts.EpochOpened
	closed   bool
	ratesSet bool
	released uint256.Int
	weight   uint256.Int // staked and in range
}

type deal struct {
	contracts.DealListed
	lender   common.Address // zero: LISTED
	fundedAt uint64
	graceEnd uint64
}

func (d deal) funded() bool { return d.lender != common.Address{} }

// open says whether a lender may still take the deal at time t.
func (d deal) open(t uint64) bool {
	return !d.funded() && (d.ListingExpiry == 0 || t <= d.ListingExpiry)
}

type bid struct{ contracts.BidPlaced }

// credit is what an account may withdraw: an amount of an ERC20, or a position.
type credit struct {
	account common.Address
	asset   common.Address
	nft     bool
	value   uint256.Int // amount, or token ID
}

type position struct {
	tokenID   uint256.Int
	pool      common.Hash
	owner     common.Address // of the token: an actor, the vault, or the staking contract
	staker    common.Address // zero: not staked
	liquidity uint256.Int
}

func (p position) staked() bool { return p.staker != common.Address{} }

type drip struct {
	contracts.DripCreated
	claimed uint256.Int
	cut     bool
}

// unlocked is RewardDistributor.unlocked.
func (d drip) unlocked(t uint64) uint256.Int {
	switch {
	case d.cut:
		return d.Total
	case t < d.Cliff || d.Length == 0:
		return uint256.Int{}
	case t-d.Start >= d.Length:
		return d.Total
	}
	var part uint256.Int
	part.MulDivOverflow(&d.Total, uint256.NewInt(t-d.Start), uint256.NewInt(d.Length))
	return part
}

func newModel() *model {
	return &model{
		nonces:  make(map[common.Address]uint64),
		paused:  make(map[common.Address]bool),
		halted:  make(map[common.Address]bool),
		frozen:  make(map[common.Address]bool),
		assets:  make(map[common.Address]contracts.AssetSet),
		openRaw: make(map[common.Address]uint256.Int),
		ticks:   make(map[common.Hash]int32),
		pools:   make(map[common.Hash]contracts.PoolSet),
	}
}

func (m *model) clone() *model {
	c := *m
	c.nonces = maps.Clone(m.nonces)
	c.deals = slices.Clone(m.deals)
	c.bids = slices.Clone(m.bids)
	c.credits = slices.Clone(m.credits)
	c.positions = slices.Clone(m.positions)
	c.drips = slices.Clone(m.drips)
	c.paused = maps.Clone(m.paused)
	c.halted = maps.Clone(m.halted)
	c.frozen = maps.Clone(m.frozen)
	c.assets = maps.Clone(m.assets)
	c.openRaw = maps.Clone(m.openRaw)
	c.ticks = maps.Clone(m.ticks)
	c.pools = maps.Clone(m.pools)
	return &c
}

// find is the place of the element whose ID is id, in a slice sorted by ID.
func find[T any](s []T, id *uint256.Int, of func(*T) *uint256.Int) (int, bool) {
	return slices.BinarySearchFunc(s, id, func(e T, id *uint256.Int) int { return of(&e).Cmp(id) })
}

func (m *model) deal(id *uint256.Int) *deal {
	if i, ok := find(m.deals, id, func(d *deal) *uint256.Int { return &d.DealID }); ok {
		return &m.deals[i]
	}
	return nil
}

func (m *model) removeDeal(id *uint256.Int) {
	if i, ok := find(m.deals, id, func(d *deal) *uint256.Int { return &d.DealID }); ok {
		m.deals = slices.Delete(m.deals, i, i+1)
	}
}

func (m *model) removeBid(id *uint256.Int) {
	if i, ok := find(m.bids, id, func(b *bid) *uint256.Int { return &b.BidID }); ok {
		m.bids = slices.Delete(m.bids, i, i+1)
	}
}

func (m *model) position(id *uint256.Int) *position {
	i, ok := find(m.positions, id, func(p *position) *uint256.Int { return &p.tokenID })
	if !ok {
		m.positions = slices.Insert(m.positions, i, position{tokenID: *id})
	}
	return &m.positions[i]
}

func (m *model) removePosition(id *uint256.Int) {
	if i, ok := find(m.positions, id, func(p *position) *uint256.Int { return &p.tokenID }); ok {
		m.positions = slices.Delete(m.positions, i, i+1)
	}
}

func (m *model) drip(id *uint256.Int) *drip {
	if i, ok := find(m.drips, id, func(d *drip) *uint256.Int { return &d.DripID }); ok {
		return &m.drips[i]
	}
	return nil
}

// dropFinished removes the drips of which nothing is left to claim.
func (m *model) dropFinished() {
	m.drips = slices.DeleteFunc(m.drips, func(d drip) bool { return d.claimed.Cmp(&d.Total) >= 0 })
}

// findCredit is the place of a credit, sorted by account, asset and, of positions, token ID.
func (m *model) findCredit(account, asset common.Address, nft bool, tokenID *uint256.Int) (int, bool) {
	return slices.BinarySearchFunc(m.credits, account, func(c credit, account common.Address) int {
		order := cmp.Or(c.account.Cmp(account), c.asset.Cmp(asset), compareBool(c.nft, nft))
		if order == 0 && nft {
			order = c.value.Cmp(tokenID)
		}
		return order
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (m *model) addCredit(e *contracts.Credited) {
	nft := e.Kind == contracts.BalanceNFT
	i, ok := m.findCredit(e.Account, e.Asset, nft, &e.AmountOrTokenID)
	if !ok {
		m.credits = slices.Insert(m.credits, i, credit{account: e.Account, asset: e.Asset, nft: nft, value: e.AmountOrTokenID})
		return
	}
	m.credits[i].value.Add(&m.credits[i].value, &e.AmountOrTokenID)
}

func (m *model) removeCredit(e *contracts.Withdrawn) {
	nft := e.Kind == contracts.BalanceNFT
	i, ok := m.findCredit(e.Account, e.Asset, nft, &e.AmountOrTokenID)
	if !ok {
		return
	}
	if c := &m.credits[i]; !nft && c.value.Gt(&e.AmountOrTokenID) {
		c.value.Sub(&c.value, &e.AmountOrTokenID)
		return
	}
	m.credits = slices.Delete(m.credits, i, i+1)
}
