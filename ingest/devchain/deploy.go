package devchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
)

// MarketConfig says what Deploy puts on a chain. The zero value of a field stands for its default.
type MarketConfig struct {
	// NodeModules is where npm installed Uniswap v4: contracts/node_modules, below the working directory.
	NodeModules string
	Seed        uint64 // that of the chain: it decides the actors' keys
	Actors      int    // how many borrow, lend, trade and stake: 12. One in three is a contract
	// Late are blocks from which on the scenario registers a stock each, which Deploy then does not.
	Late []uint64
	// NoTokenLayer leaves out epochs, rewards, staking and the burner, as on a chain that has none yet.
	NoTokenLayer bool
}

const (
	defaultNodeModules = "contracts/node_modules"
	defaultActors      = 12
	maxActors          = 1000
	deployBlockTxs     = 200 // transactions in a block of the deployment
	deployBlockSeconds = 12
)

func (c MarketConfig) withDefaults() MarketConfig {
	c.NodeModules = or(c.NodeModules, defaultNodeModules)
	c.Actors = or(c.Actors, defaultActors)
	return c
}

// Validate names every fault of the configuration at once.
func (c MarketConfig) Validate() error {
	c = c.withDefaults()
	if c.Actors < 3 || c.Actors > maxActors {
		return fmt.Errorf("actors %d: not between 3 and %d", c.Actors, maxActors)
	}
	if len(c.Late) > len(stocks) {
		return fmt.Errorf("late %d: there are %d stocks", c.Late, len(stocks))
	}
	return nil
}

// Market is what Deploy put on a chain: the contracts, and who uses them.
type Market struct {
	Deployment contracts.Deployment

	backend   Backend
	head      *Block
	model     *model
	decoder   *contracts.Decoder
	admin     account // owns every contract
	actors    []account
	byAddress map[common.Address]account // the actors

	vault, registry, manager, positions, permit2, router callee
	stranger                                             callee // a contract of nobody's, which imitates the market's logs
	epochs, rewards, staking, burner                     callee // zero addresses without the token layer

	usdg, weth, tkn, stkn token
	stocks                []token
	late                  map[common.Address]uint64 // the first block in which a stock may be registered; none: it is
	pools                 []pool                    // the first is sTKN/TKN where there is a token layer
}

// tokenLayer says whether epochs, rewards, staking and the burner are there.
func (m *Market) tokenLayer() bool { return m.epochs.address != common.Address{} }

// collateral are the ERC20s that may be listed.
func (m *Market) collateral() []token { return append([]token{m.weth, m.tkn}, m.stocks...) }

// Deploy puts the market's contracts, Uniswap v4, pools with liquidity, registered assets and actors with
// money on a chain, in a handful of blocks. The chain's deployer, whose key follows from the seed, needs to have ether.
func Deploy(ctx context.Context, backend Backend, cfg MarketConfig) (*Market, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("market config: %w", err)
	}
	cfg = cfg.withDefaults()
	uniswap, err := contracts.UniswapArtifacts(cfg.NodeModules)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("uniswap v4 is not in %s (run `make deps`): %w", cfg.NodeModules, err)
	}
	if err != nil {
		return nil, err
	}
	d := &deployment{
		ctx: ctx, backend: backend, chainID: backend.Traits().ChainID, uniswap: uniswap,
		nonces: make(map[common.Address]uint64),
		market: &Market{backend: backend, admin: newAccount(cfg.Seed, Deployer), byAddress: make(map[common.Address]account), late: make(map[common.Address]uint64)},
	}
	for i := range cfg.Actors {
		d.market.actors = append(d.market.actors, newAccount(cfg.Seed, fmt.Sprintf("actor %d", i)))
	}
	return d.run(cfg)
}

// deployment is a Deploy under way. Addresses of contracts follow from the deployer's nonces, so transactions
// are queued without waiting for those before them, and mined many to a block.
type deployment struct {
	ctx     context.Context //nolint:containedctx // it lives for one call of Deploy
	backend Backend
	chainID *big.Int
	uniswap map[string]contracts.Artifact
	market  *Market

	nonces map[common.Address]uint64
	calls  []call
	logs   []*types.Log
	err    error // of the first transaction that was not mined well: nothing is sent after it
}

func (d *deployment) run(cfg MarketConfig) (*Market, error) {
	m, tokenLayer := d.market, !cfg.NoTokenLayer
	start, err := d.backend.Client().HeaderByNumber(d.ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("read the head: %w", err)
	}
	m.head = &Block{Number: start.Number.Uint64(), Hash: start.Hash(), Timestamp: start.Time}

	d.sendEther()
	d.deployWallets()
	d.deployTokens()
	for i, block := range cfg.Late {
		m.late[m.stocks[i].address] = block
	}
	d.deployUniswap()
	d.describePools(tokenLayer)
	d.deployMarket()
	if tokenLayer {
		d.deployTokenLayer()
	}
	d.openPools()
	d.registerAssets()
	d.fundActors()
	d.flush()
	if d.err != nil {
		return nil, d.err
	}
	return m, d.finish(start.Number.Uint64() + 1)
}

// finish says where everything is and reads what the deployment's own logs say into the model.
func (d *deployment) finish(startBlock uint64) error {
	m := d.market
	m.Deployment = contracts.Deployment{
		ChainID: d.chainID.Uint64(), StartBlock: startBlock,
		DealVault: m.vault.address, AssetRegistry: m.registry.address, USDG: m.usdg.address,
		PoolManager: m.manager.address, PositionManager: m.positions.address,
		StateView: d.create("StateView", d.uniswap["StateView"], m.manager.address).address,
		V4Quoter:  d.create("V4Quoter", d.uniswap["V4Quoter"], m.manager.address).address,
	}
	if m.tokenLayer() {
		m.Deployment.EpochController, m.Deployment.RewardDistributor = m.epochs.address, m.rewards.address
		m.Deployment.LiquidityStaking, m.Deployment.Burner = m.staking.address, m.burner.address
		m.Deployment.TKN, m.Deployment.STKN = m.tkn.address, m.stkn.address
		m.Deployment.PoolID = m.pools[0].id
	}
	d.flush()
	if d.err != nil {
		return d.err
	}
	m.decoder = contracts.NewDecoder(m.Deployment)
	m.model = newModel()
	m.model.nonces = d.nonces
	for _, log := range d.logs {
		m.model.apply(m.event(log))
	}
	for i := range m.pools {
		m.pools[i].tick = m.model.ticks[m.pools[i].id]
	}
	return nil
}

// create queues the creation of a contract and says where it will be.
func (d *deployment) create(name string, artifact contracts.Artifact, args ...any) callee {
	nonce := d.queue(create(d.market.admin, name, artifact, args...))
	return callee{name: name, address: crypto.CreateAddress(d.market.admin.address, nonce), abi: artifact.ABI}
}

// createOwn is create for a contract of ours.
func (d *deployment) createOwn(name string, args ...any) callee {
	return d.create(name, compiled(name), args...)
}

// createHook is createOwn for a pool's hook, which the pool manager calls when the last bits of its address say so.
// Only a contract can choose the address of another by a salt, so one is created first.
func (d *deployment) createHook(name string, args ...any) callee {
	maker := call{from: d.market.admin, gas: createGas, data: contracts.Create2Maker, label: "create the market maker of " + name}
	at := crypto.CreateAddress(maker.from.address, d.queue(maker))
	artifact := compiled(name)
	code := create(d.market.admin, name, artifact, args...)
	address, salt := contracts.HookAddress(at, code.data)
	code.to, code.data = &at, append(salt[:], code.data...)
	d.queue(code)
	return callee{name: name, address: address, abi: artifact.ABI}
}

// queue takes a transaction and returns its nonce.
func (d *deployment) queue(c call) uint64 {
	d.calls = append(d.calls, c)
	nonce := d.nonces[c.from.signer]
	d.nonces[c.from.signer]++
	if len(d.calls) >= deployBlockTxs {
		d.flush()
	}
	return nonce
}

// do queues calls of the deployer's.
func (d *deployment) do(to callee, method string, args ...any) {
	d.queue(to.call(d.market.admin, method, args...))
}

// flush mines what is queued.
func (d *deployment) flush() {
	calls := d.calls
	d.calls = nil
	if d.err != nil || len(calls) == 0 {
		return
	}
	block, err := d.mine(calls)
	if err != nil {
		d.err = fmt.Errorf("deploy: %w", err)
		return
	}
	d.logs = append(d.logs, block.Logs()...)
	d.market.head = block
}

func (d *deployment) mine(calls []call) (*Block, error) {
	pending := make(map[common.Address]uint64, len(d.nonces))
	for _, c := range calls {
		pending[c.from.signer]++
	}
	txs := make([]*types.Transaction, len(calls))
	for i, c := range calls {
		tx, err := c.sign(d.chainID, d.nonces[c.from.signer]-pending[c.from.signer])
		if err != nil {
			return nil, err
		}
		pending[c.from.signer]--
		txs[i] = tx
	}
	block, err := d.backend.Mine(d.ctx, d.market.head.Timestamp+deployBlockSeconds, txs)
	if err != nil {
		return nil, err
	}
	for i, receipt := range block.Receipts {
		if receipt.Status != types.ReceiptStatusSuccessful {
			return nil, fmt.Errorf("%s of %s reverted", calls[i].label, calls[i].from.name)
		}
	}
	return block, nil
}

// accountFrozen is what the dollar says of an account, which the market does not listen to.
type accountFrozen struct {
	contracts.Unknown
	account common.Address
	frozen  bool
}

// event is what a log means.
func (m *Market) event(log *types.Log) contracts.Event {
	if log.Address == m.usdg.address && len(log.Topics) == 2 {
		usdg := compiled("USDG").ABI
		switch log.Topics[0] {
		case usdg.Events["FreezeAddress"].ID, usdg.Events["UnfreezeAddress"].ID:
			return &accountFrozen{
				account: common.BytesToAddress(log.Topics[1][:]), frozen: log.Topics[0] == usdg.Events["FreezeAddress"].ID,
			}
		}
	}
	return m.decoder.Decode(log.Address, log.Topics, log.Data)
}

// own is one of our contracts at an address, for calls.
func own(name string, address common.Address) callee {
	return callee{name: name, address: address, abi: compiled(name).ABI}
}

// compiled is one of our own contracts. It panics when there is none of the name: the names are ours.
func compiled(name string) contracts.Artifact {
	code, err := contracts.Bytecode(name)
	if err != nil {
		panic(fmt.Errorf("devchain: %w", err))
	}
	abi, err := contracts.ABI(name)
	if err != nil {
		panic(fmt.Errorf("devchain: %w", err))
	}
	return contracts.Artifact{ABI: abi, Bytecode: code}
}
