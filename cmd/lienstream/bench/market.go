package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
)

// market generates the history of a market from a seed: deals that are listed, changed, bid on, funded and settled, in
// the order and with the amounts that the vault would emit.
type market struct {
	random   *rand.Rand
	vault    map[string]abi.Event
	registry map[string]abi.Event
	accounts []common.Address
	assets   []common.Address
	deals    uint64
	bids     uint64
	now      uint64
	listed   []*deal
	funded   []*deal
	credits  []credit
	queue    [][]byte // logs of an action that did not fit
	open     int      // deals that may be listed at once
	more     int      // actions beside a hundred others that list one, or cancel one where there are as many
}

type deal struct {
	id       uint64
	borrower common.Address
	token    common.Address
	lender   common.Address
	cap      uint64
	bids     []bid // open ones
}

type bid struct {
	id     uint64
	lender common.Address
	price  uint64
}

type credit struct {
	account, asset common.Address
	amount         uint64
}

// Sizes of the market: 200,000 logs are some 19,000 deals with 10 events each, and 200 logs per account.
const (
	marketAccounts = 160
	marketAssets   = 8
	openDeals      = 3000 // listed at once
	dealsByAccount = 120
	dollar         = 1_000_000
	week           = 7 * 24 * 3600
)

func newMarket(seed uint64) (*market, error) {
	return newMarketOf(seed, marketAccounts)
}

// newMarketThatGrows ends with so many deals: in proportion to them are the accounts and the deals that are listed at once, a
// tenth. Most are cancelled, so that a deal takes few logs.
func newMarketThatGrows(seed, deals uint64) (*market, error) {
	m, err := newMarketOf(seed, max(marketAccounts, int(deals/dealsByAccount)))
	if err == nil {
		m.open, m.more = int(deals/10), 200
	}
	return m, err
}

func newMarketOf(seed uint64, accounts int) (*market, error) {
	m := &market{random: rand.New(rand.NewPCG(seed, 0)), now: genesisTime, open: openDeals}
	vault, err := contracts.ABI("DealVault")
	if err != nil {
		return nil, err
	}
	registry, err := contracts.ABI("AssetRegistry")
	if err != nil {
		return nil, err
	}
	m.vault, m.registry = vault.Events, registry.Events
	name := func(kind string, n int) common.Address {
		return common.BytesToAddress(crypto.Keccak256(fmt.Appendf(nil, "%s %d of %d", kind, n, seed)))
	}
	for i := range accounts {
		m.accounts = append(m.accounts, name("account", i))
	}
	for i := range marketAssets {
		m.assets = append(m.assets, name("asset", i))
	}
	return m, nil
}

// logs are the next n logs of the vault, as Scribe takes them.
func (m *market) logs(n int) []byte {
	var data []byte
	m.now++
	for range n {
		for len(m.queue) == 0 {
			m.act()
		}
		data = append(data, m.queue[0]...)
		m.queue = m.queue[1:]
	}
	return data
}

// openings are n logs of the registry: each deal changes an asset's open amount.
func (m *market) openings(n int) []byte {
	var data []byte
	for range n {
		asset := m.assets[m.random.IntN(len(m.assets))]
		data = append(data, encode(m.registry["OpenRawChanged"], asset, m.random.Uint64N(1e18))...)
	}
	return data
}

// assetsSet registers the assets.
func (m *market) assetsSet() ([]byte, error) {
	var data []byte
	event := m.registry["AssetSet"]
	for i, asset := range m.assets {
		number := func(n uint64) any { return asBig(n) }
		args, err := event.Inputs.NonIndexed().Pack(uint8(contracts.KindERC20), true, uint8(18),
			number(1), number(1e18), number(1e18), fmt.Sprintf("STK%d", i), fmt.Sprintf("Stock %d", i))
		if err != nil {
			return nil, fmt.Errorf("pack AssetSet: %w", err)
		}
		topics := append(append(event.ID.Bytes(), common.LeftPadBytes(asset[:], 32)...), word(uint64(contracts.LaneStock))...)
		data = append(data, scribe(topics, args)...)
	}
	return data, nil
}

func (m *market) emit(event string, args ...any) {
	m.queue = append(m.queue, encode(m.vault[event], args...))
}

// act is the next action of an account.
func (m *market) act() {
	switch p := m.random.IntN(100+m.more) - m.more; {
	case len(m.listed) < 10 || len(m.listed) < m.open && p < 24:
		m.list()
	case p < 24 && m.more > 0:
		m.cancel()
	case p < 36:
		d := m.pick(m.listed)
		d.cap = 1000*dollar + m.random.Uint64N(1000*dollar)
		m.update(d)
	case p < 66:
		d := m.pick(m.listed)
		m.bids++
		b := bid{id: m.bids, lender: m.account(), price: d.cap}
		d.bids = append(d.bids, b)
		m.emit("BidPlaced", d.id, b.id, b.lender, b.price, m.now+week, m.now, termsHash(d.id))
	case p < 76:
		m.withdrawBid()
	case p < 88:
		m.fund()
	case p < 97:
		m.settle()
	default:
		m.withdraw()
	}
}

func (m *market) list() {
	m.deals++
	d := &deal{id: m.deals, borrower: m.account(), token: m.assets[m.random.IntN(len(m.assets))], cap: 1000 * dollar}
	m.listed = append(m.listed, d)
	m.emit("DealListed", d.id, d.borrower, d.token, uint64(contracts.KindERC20), uint64(contracts.LaneStock),
		1+m.random.Uint64N(1e18), d.cap, d.cap/2, uint64(week), m.now+4*week, m.now, uint64(100), termsHash(d.id))
}

func (m *market) cancel() {
	i := m.random.IntN(len(m.listed))
	d := m.delist(i)
	m.emit("DealCancelled", d.id, d.borrower, m.now)
	m.credit(d.borrower, d.token, d.id, contracts.BalanceERC20, d.cap, contracts.CreditCollateralReturn)
}

// delist takes a deal off those that are listed.
func (m *market) delist(i int) *deal {
	d := m.listed[i]
	m.listed[i] = m.listed[len(m.listed)-1]
	m.listed = m.listed[:len(m.listed)-1]
	return d
}

func (m *market) update(d *deal) {
	m.emit("DealTermsUpdated", d.id, d.cap, d.cap/2, uint64(week), m.now+4*week, termsHash(d.id))
}

func (m *market) withdrawBid() {
	d := m.pick(m.listed)
	if len(d.bids) == 0 {
		return
	}
	b := d.bids[0]
	d.bids = d.bids[1:]
	m.emit("BidWithdrawn", d.id, b.id, b.lender, b.price, m.now)
	m.credit(b.lender, usdg, d.id, contracts.BalanceUSDG, b.price, contracts.CreditBidRefund)
}

func (m *market) fund() {
	i := m.random.IntN(len(m.listed))
	d := m.listed[i]
	lender, price, id := m.account(), d.cap, uint64(0)
	if len(d.bids) > 0 {
		b := d.bids[0]
		d.bids = d.bids[1:]
		lender, price, id = b.lender, b.price, b.id
		m.emit("BidAccepted", d.id, b.id, b.lender, b.price, m.now)
	}
	m.delist(i)
	d.lender = lender
	m.funded = append(m.funded, d)
	fee := price / 100
	m.emit("DealFunded", d.id, lender, id, price, fee, price-fee, m.now, m.now+week, m.now+week+3600, termsHash(d.id))
	m.credit(d.borrower, usdg, d.id, contracts.BalanceUSDG, price-fee, contracts.CreditProceeds)
	m.credit(m.accounts[0], usdg, d.id, contracts.BalanceUSDG, fee, contracts.CreditFee)
}

func (m *market) settle() {
	if len(m.funded) == 0 {
		return
	}
	i := m.random.IntN(len(m.funded))
	d := m.funded[i]
	m.funded[i] = m.funded[len(m.funded)-1]
	m.funded = m.funded[:len(m.funded)-1]
	if m.random.IntN(5) == 0 {
		m.emit("DealClaimed", d.id, d.lender, d.borrower, m.now)
		m.credit(d.lender, d.token, d.id, contracts.BalanceERC20, d.cap, contracts.CreditCollateralClaim)
		return
	}
	m.emit("DealReclaimed", d.id, d.borrower, d.lender, d.cap, m.now)
	m.credit(d.lender, usdg, d.id, contracts.BalanceUSDG, d.cap, contracts.CreditRepayment)
	m.credit(d.borrower, d.token, d.id, contracts.BalanceERC20, d.cap, contracts.CreditCollateralReturn)
}

func (m *market) credit(account, asset common.Address, deal uint64, kind contracts.BalanceKind, amount uint64, why contracts.CreditReason) {
	m.emit("Credited", account, asset, deal, uint64(kind), amount, uint64(why))
	if m.random.IntN(4) == 0 {
		m.credits = append(m.credits, credit{account, asset, amount})
	}
}

// withdraw takes out a part of a credit, so that credits do not grow without bound.
func (m *market) withdraw() {
	if len(m.credits) == 0 {
		return
	}
	c := m.credits[len(m.credits)-1]
	m.credits = m.credits[:len(m.credits)-1]
	kind := contracts.BalanceERC20
	if c.asset == usdg {
		kind = contracts.BalanceUSDG
	}
	m.emit("Withdrawn", c.account, c.asset, c.account, uint64(kind), c.amount)
}

func (m *market) account() common.Address  { return m.accounts[m.random.IntN(len(m.accounts))] }
func (m *market) pick(deals []*deal) *deal { return deals[m.random.IntN(len(deals))] }

func termsHash(id uint64) common.Hash { return crypto.Keccak256Hash(word(id)) }

// encode is a log of an event. The arguments are in the order of their declaration, in which indexed ones come first.
func encode(event abi.Event, args ...any) []byte {
	if len(args) != len(event.Inputs) {
		panic(fmt.Sprintf("bench: %s takes %d arguments, not %d", event.Name, len(event.Inputs), len(args)))
	}
	topics, data := event.ID.Bytes(), []byte(nil)
	for i, a := range args {
		var w []byte
		switch a := a.(type) {
		case uint64:
			w = word(a)
		case common.Address:
			w = common.LeftPadBytes(a[:], 32)
		case common.Hash:
			w = a[:]
		default:
			panic(fmt.Sprintf("bench: argument %d of %s is a %T", i, event.Name, a))
		}
		if event.Inputs[i].Indexed {
			topics = append(topics, w...)
		} else {
			data = append(data, w...)
		}
	}
	return scribe(topics, data)
}

// scribe is a log as the contract Scribe takes it.
func scribe(topics, data []byte) []byte {
	b := append(make([]byte, 0, 3+len(topics)+len(data)), byte(len(topics)/32))
	b = binary.BigEndian.AppendUint16(append(b, topics...), uint16(len(data)))
	return append(b, data...)
}

func word(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24, 32), n) }
