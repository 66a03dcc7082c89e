package devchain

import (
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/contracts"
)

// What the market starts with.
const (
	grace        = 24 * time.Hour
	feeBps       = 100
	poolDollars  = 20_000_000 // on each side of a pool
	actorDollars = 50_000_000 // of each token, for each actor
	actorEther   = 100_000
	minLiquidity = 1_000_000
	unsubscribe  = 300_000 // gas that a position's subscriber gets when it is dropped
	forever      = 1 << 40 // a deadline
	maxPositions = 1_000_000
	listedTokens = 10_000_000 // whole tokens that may be listed at once
	dealTokens   = 100_000    // and in one deal
	dustPerToken = 1_000_000  // a deal takes at least this part of a token
)

// maxUint is the allowance that never ends.
var maxUint = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))

// sendEther pays for the actors' gas, in a block of its own: a node may refuse transactions of a sender
// who has nothing yet.
func (d *deployment) sendEther() {
	for _, actor := range d.market.actors {
		d.queue(transfer(d.market.admin, actor.signer, new(big.Int).Mul(big.NewInt(actorEther), big.NewInt(params.Ether))))
	}
	d.flush()
}

// deployWallets makes one in three actors a contract.
func (d *deployment) deployWallets() {
	m := d.market
	for i := range m.actors {
		if i%3 == 2 {
			m.actors[i].address = d.createOwn("Wallet", m.actors[i].signer).address
		}
		m.byAddress[m.actors[i].address] = m.actors[i]
	}
	m.stranger = d.createOwn("Scribe")
}

// stocks are the tokens of companies.
var stocks = []struct {
	name, symbol string
	cents        int64
}{
	{"Acme Corporation", "ACME", 180_00},
	{"Globex", "GLBX", 420_00},
	{"Initech", "INTC", 95_00},
}

func (d *deployment) deployTokens() {
	m := d.market
	owner := m.admin.address
	erc20 := func(c callee, decimals, cents int64) token {
		return token{address: c.address, decimals: decimals, centsEach: cents}
	}
	m.usdg = erc20(d.createOwn("USDG", owner), contracts.USDGDecimals, 100)
	m.weth = erc20(d.createOwn("WETH"), contracts.TokenDecimals, 4_000_00)
	m.tkn = erc20(d.createOwn("TKN", owner), contracts.TokenDecimals, 50)
	for _, stock := range stocks {
		m.stocks = append(m.stocks, erc20(d.createOwn("StockToken", owner, stock.name, stock.symbol), contracts.TokenDecimals, stock.cents))
	}
}

func (d *deployment) deployUniswap() {
	m := d.market
	m.manager = d.create("PoolManager", d.uniswap["PoolManager"], m.admin.address)
	m.permit2 = d.create("Permit2", d.uniswap["Permit2"])
	m.positions = d.create("PositionManager", d.uniswap["PositionManager"],
		m.manager.address, m.permit2.address, big.NewInt(unsubscribe), common.Address{}, m.weth.address)
	m.router = d.create("PoolSwapTest", d.uniswap["PoolSwapTest"], m.manager.address)
}

func (d *deployment) describePools(tokenLayer bool) {
	m := d.market
	if tokenLayer {
		m.stkn = token{address: d.createOwn("STKN", m.admin.address, m.tkn.address).address, decimals: contracts.TokenDecimals, centsEach: 50}
		m.pools = append(m.pools, newPool(m.tkn, m.stkn, 3000, 60))
	}
	m.pools = append(m.pools,
		newPool(m.usdg, m.tkn, 10_000, 200),
		newPool(m.usdg, m.weth, 500, 10))
	for _, stock := range m.stocks {
		m.pools = append(m.pools, newPool(m.usdg, stock, 3000, 60))
	}
}

func (d *deployment) deployMarket() {
	m := d.market
	owner := m.admin.address
	m.registry = d.createOwn("AssetRegistry", owner, m.positions.address)
	m.vault = d.createOwn("DealVault", owner, m.usdg.address, m.registry.address,
		big.NewInt(int64(grace.Seconds())), uint16(feeBps), owner)
	d.do(m.registry, "setVault", m.vault.address)
}

func (d *deployment) deployTokenLayer() {
	m := d.market
	owner := m.admin.address
	m.rewards = d.createOwn("RewardDistributor", owner, m.stkn.address)
	m.staking = d.createHook("LiquidityStaking", owner, m.manager.address, m.positions.address,
		m.pools[0].key, m.rewards.address, m.tkn.address, owner)
	m.pools[0].key.Hooks = m.staking.address
	m.pools[0].id = poolID(m.pools[0].key)
	m.epochs = d.createOwn("EpochController", owner, m.vault.address, m.rewards.address, m.staking.address)
	m.burner = d.createOwn("Burner", owner, m.manager.address, m.vault.address, m.tkn.address, m.stkn.address,
		m.pools[1].key, m.pools[0].key)

	stkn := own("STKN", m.stkn.address)
	d.do(stkn, "setMinter", m.rewards.address, true)
	d.do(stkn, "setMinter", owner, true)
	d.do(m.rewards, "setSource", m.epochs.address, true)
	d.do(m.rewards, "setSource", m.staking.address, true)
	d.do(m.staking, "setController", m.epochs.address)
	d.do(m.vault, "setRewards", m.epochs.address)
	d.do(m.vault, "setFee", uint16(feeBps), m.burner.address)
}

// openPools starts every pool at its price, with a position of the deployer's over the full range. The one in
// the staking pool is staked: it is the seed under the price.
func (d *deployment) openPools() {
	m := d.market
	d.fund(m.admin, poolDollars*int64(len(m.pools)+1))
	d.allow(m.admin)
	for i, p := range m.pools {
		limit := maxTick(p.spacing())
		d.do(m.manager, "initialize", p.key, p.sqrtPrice)
		d.queue(p.mint(m.positions, m.admin, forever, -limit, limit, p.liquidity))
		if p.key.Hooks == (common.Address{}) { // the registry refuses positions of others
			d.do(m.registry, "setPool", p.id, true, big.NewInt(minLiquidity), maxUint128)
		}
		if m.tokenLayer() && i == 0 {
			d.do(m.staking, "stake", big.NewInt(1)) // the first token ID
		}
	}
}

// limits is AssetRegistry.Limits.
type limits struct {
	Allowed    bool
	Kind       uint8
	Lane       uint8
	MinAmount  *big.Int
	MaxDealRaw *big.Int
	MaxOpenRaw *big.Int
}

func (d *deployment) registerAssets() {
	m := d.market
	for _, t := range m.collateral() {
		if m.late[t.address] == 0 {
			d.do(m.registry, "setAsset", t.address, m.limits(t))
		}
	}
	d.do(m.registry, "setAsset", m.positions.address, limits{
		Allowed: true, Kind: uint8(contracts.KindPosition), Lane: uint8(contracts.LanePosition),
		MinAmount: big.NewInt(1), MaxDealRaw: big.NewInt(1), MaxOpenRaw: big.NewInt(maxPositions),
	})
}

// limits are those that an ERC20 is registered with at first.
func (m *Market) limits(t token) limits {
	lane := contracts.LaneStock
	switch t.address {
	case m.weth.address:
		lane = contracts.LaneETH
	case m.tkn.address:
		lane = contracts.LaneMeme
	}
	return limits{
		Allowed: true, Kind: uint8(contracts.KindERC20), Lane: uint8(lane),
		MinAmount:  new(big.Int).Div(t.unit(), big.NewInt(dustPerToken)),
		MaxDealRaw: new(big.Int).Mul(t.unit(), big.NewInt(dealTokens)),
		MaxOpenRaw: new(big.Int).Mul(t.unit(), big.NewInt(listedTokens)),
	}
}

func (d *deployment) fundActors() {
	for _, actor := range d.market.actors {
		d.fund(actor, actorDollars)
		d.allow(actor)
	}
}

// fund gives an account so many dollars of each token.
func (d *deployment) fund(to account, dollars int64) {
	m := d.market
	for _, t := range append([]token{m.usdg, m.tkn}, m.stocks...) {
		d.do(own("TKN", t.address), "mint", to.address, t.worth(dollars)) // each of them mints like TKN
	}
	if m.stkn.address != (common.Address{}) {
		d.do(own("STKN", m.stkn.address), "mint", to.address, m.stkn.worth(dollars))
	}
	wrap := own("WETH", m.weth.address).call(m.admin, "deposit")
	wrap.value = m.weth.worth(dollars)
	d.queue(wrap)
	if to.address != m.admin.address {
		d.do(own("WETH", m.weth.address), "transfer", to.address, m.weth.worth(dollars))
	}
}

// allow lets the contracts that an account uses take what it brings them.
func (d *deployment) allow(from account) {
	m := d.market
	approve := func(t token, spenders ...callee) {
		erc20 := own("TKN", t.address)
		for _, spender := range append(spenders, m.router, m.permit2) {
			d.queue(erc20.call(from, "approve", spender.address, maxUint))
		}
		maxUint160 := new(big.Int).Rsh(maxUint, 96)
		d.queue(m.permit2.call(from, "approve", t.address, m.positions.address, maxUint160, big.NewInt(1<<48-1)))
	}
	approve(m.usdg, m.vault)
	for _, t := range m.collateral() {
		approve(t, m.vault)
	}
	d.queue(m.positions.call(from, "setApprovalForAll", m.vault.address, true))
	if m.tokenLayer() {
		approve(m.stkn)
		d.queue(own("TKN", m.usdg.address).call(from, "approve", m.burner.address, maxUint))
		d.queue(own("TKN", m.tkn.address).call(from, "approve", m.staking.address, maxUint))
		d.queue(m.positions.call(from, "setApprovalForAll", m.staking.address, true))
	}
}
