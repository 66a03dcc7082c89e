// Package paychain is the embedded payment network: an EVM chain in this process with a dollar that is transferred by
// signature, and accounts that own some. It must not know what is paid for.
package paychain

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
)

// ChainID is that of the network that it stands for.
const ChainID = 8453

// DefaultAddr is where its JSON-RPC listens, beside that of the embedded market chain.
const DefaultAddr = "127.0.0.1:8546"

// What the dollar signs its transfers as.
const (
	TokenName    = "USD Coin"
	TokenVersion = "2"
)

// Config of a chain. The zero value of a field stands for its default.
type Config struct {
	Port     int           // of its JSON-RPC; 0 is any free one
	Interval time.Duration // between blocks that Run makes: 1 s, as timestamps are whole seconds
	Seed     uint64        // of the accounts' keys
	Scratch  string        // folder to keep its data in, as devchain.Config has it
	Now      func() time.Time
}

// Chain is the payment network.
type Chain struct {
	cfg   Config
	chain *devchain.Chain
	mu    sync.Mutex
	pool  sync.Mutex // one transaction at a time is given its nonce
}

// blocksBack is how long ago the chain begins, so that its clock can catch up with ours.
const blocksBack = 600

// New starts a chain with the dollar on it. The caller closes it.
func New(cfg Config) (*Chain, error) {
	if cfg.Interval == 0 {
		cfg.Interval = time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	token, err := TokenAccount(Address(cfg.Seed, "owner"))
	if err != nil {
		return nil, err
	}
	alloc := types.GenesisAlloc{Token: token}
	for _, name := range []string{"owner", "relayer", "float", "stranger", "payer"} {
		alloc[Address(cfg.Seed, name)] = types.Account{Balance: ether(1000)}
	}
	chain, err := devchain.New(devchain.Config{
		ChainID: ChainID, Port: cfg.Port, Seed: cfg.Seed, GenesisTime: uint64(cfg.Now().Unix()) - blocksBack, GasLimit: 60_000_000, Alloc: alloc,
		Scratch: cfg.Scratch, Prune: true,
	})
	if err != nil {
		return nil, fmt.Errorf("start the payment chain: %w", err)
	}
	return &Chain{cfg: cfg, chain: chain}, nil
}

// Key is the key of a named account. Everybody can derive it: it is worth nothing elsewhere.
func Key(seed uint64, name string) *ecdsa.PrivateKey {
	key, err := crypto.ToECDSA(crypto.Keccak256(fmt.Appendf(nil, "lienstream payment chain %d %s", seed, name)))
	if err != nil {
		panic(err) // one in 2^128
	}
	return key
}

// Address is the address of a named account.
func Address(seed uint64, name string) common.Address {
	return crypto.PubkeyToAddress(Key(seed, name).PublicKey)
}

// HTTP is the address of the JSON-RPC API.
func (c *Chain) HTTP() string { return c.chain.HTTP() }

// Client speaks to the chain without a network between.
func (c *Chain) Client() *ethclient.Client { return c.chain.Client() }

// Token is the dollar's address.
func (*Chain) Token() common.Address { return Token }

// Key is the key of a named account of this chain.
func (c *Chain) Key(name string) *ecdsa.PrivateKey { return Key(c.cfg.Seed, name) }

// Address is the address of a named account of this chain.
func (c *Chain) Address(name string) common.Address { return Address(c.cfg.Seed, name) }

// Mine makes a block of what waits and of txs, at the clock's time or the first second after the head.
func (c *Chain) Mine(ctx context.Context, txs ...*types.Transaction) (*devchain.Block, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	head, err := c.chain.Client().HeaderByNumber(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("read the payment chain's head: %w", err)
	}
	return c.chain.Mine(ctx, max(head.Time+1, uint64(c.cfg.Now().Unix())), txs)
}

// Rewind drops the last blocks, and what waits.
func (c *Chain) Rewind(ctx context.Context, depth uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.chain.Rewind(ctx, depth)
}

// Run makes a block every interval until ctx is done, then closes the chain.
func (c *Chain) Run(ctx context.Context) error {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return c.chain.Close()
		case <-ticker.C:
			if _, err := c.Mine(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("payment chain: %w", err)
			}
		}
	}
}

// Close ends the chain. Run does it too.
func (c *Chain) Close() error { return c.chain.Close() }

// Deploy puts one of our contracts on the chain, from the account "owner".
func (c *Chain) Deploy(ctx context.Context, name string, args ...any) (common.Address, error) {
	code, err := contracts.Bytecode(name)
	if err != nil {
		return common.Address{}, err
	}
	parsed, err := contracts.ABI(name)
	if err != nil {
		return common.Address{}, err
	}
	packed, err := parsed.Pack("", args...)
	if err != nil {
		return common.Address{}, fmt.Errorf("deploy %s: %w", name, err)
	}
	receipt, err := c.send(ctx, "owner", nil, append(code, packed...))
	if err != nil {
		return common.Address{}, fmt.Errorf("deploy %s: %w", name, err)
	}
	return receipt.ContractAddress, nil
}

// Call has a named account call a method of the dollar, in a block of its own.
func (c *Chain) Call(ctx context.Context, account, method string, args ...any) (*types.Receipt, error) {
	parsed, err := contracts.ABI("PaymentDollar")
	if err != nil {
		return nil, err
	}
	data, err := parsed.Pack(method, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return c.Send(ctx, account, Token, data)
}

func ether(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), big.NewInt(params.Ether)) }

// Dollars is an amount in the dollar's smallest unit.
func Dollars(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), big.NewInt(1_000_000)) }

// Fund mints dollars, in units of a millionth, for an address.
func (c *Chain) Fund(ctx context.Context, to common.Address, amount *big.Int) error {
	_, err := c.Call(ctx, "owner", "mint", to, amount)
	return err
}

// Send has a named account send a call, in a block of its own.
func (c *Chain) Send(ctx context.Context, account string, to common.Address, data []byte) (*types.Receipt, error) {
	return c.send(ctx, account, &to, data)
}

// Submit has a named account send a call, as anybody does: into the pool, for the next block.
func (c *Chain) Submit(ctx context.Context, account string, to common.Address, data []byte) error {
	c.pool.Lock()
	defer c.pool.Unlock()
	nonce, err := c.chain.Client().PendingNonceAt(ctx, c.Address(account))
	if err != nil {
		return fmt.Errorf("read the nonce of %s: %w", account, err)
	}
	tx, err := c.sign(account, nonce, &to, data)
	if err != nil {
		return err
	}
	return c.chain.Client().SendTransaction(ctx, tx)
}

func (c *Chain) sign(account string, nonce uint64, to *common.Address, data []byte) (*types.Transaction, error) {
	tx, err := types.SignNewTx(c.Key(account), types.LatestSignerForChainID(big.NewInt(ChainID)), &types.DynamicFeeTx{
		ChainID: big.NewInt(ChainID), Nonce: nonce, GasTipCap: big.NewInt(params.GWei), GasFeeCap: big.NewInt(100 * params.GWei),
		Gas: 3_000_000, To: to, Data: data,
	})
	if err != nil {
		return nil, fmt.Errorf("sign for %s: %w", account, err)
	}
	return tx, nil
}

func (c *Chain) send(ctx context.Context, account string, to *common.Address, data []byte) (*types.Receipt, error) {
	nonce, err := c.chain.Client().NonceAt(ctx, c.Address(account), nil)
	if err != nil {
		return nil, fmt.Errorf("read the nonce of %s: %w", account, err)
	}
	tx, err := c.sign(account, nonce, to, data)
	if err != nil {
		return nil, err
	}
	block, err := c.Mine(ctx, tx)
	if err != nil {
		return nil, err
	}
	for _, receipt := range block.Receipts {
		if receipt.TxHash == tx.Hash() {
			if receipt.Status != types.ReceiptStatusSuccessful {
				return receipt, fmt.Errorf("transaction %s of %s reverted", tx.Hash(), account)
			}
			return receipt, nil
		}
	}
	return nil, fmt.Errorf("transaction %s of %s was not mined", tx.Hash(), account)
}
