package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain"
)

const (
	genesisTime  = 2_000_000_000 // as the embedded chain's: a head in the past looks like a dead node
	chainID      = devchain.DefaultChainID
	logsPerTx    = 100
	registryEach = 10 // one in so many transactions is the registry's
	scribeGas    = 100_000_000
	fullBlocks   = 2_000 // most of a history: anvil slows down with each block
)

// usdg is an address without code: nobody calls it.
var usdg = nowhere("usdg")

// chain is anvil with the history of a market, and mines blocks when told. The vault and the registry are Scribes:
// contracts that emit the logs they are given.
type chain struct {
	*devchain.Anvil

	rpc        *rpc.Client
	key        *ecdsa.PrivateKey
	from       common.Address
	nonce      uint64
	deployment contracts.Deployment
	file       string // the deployment, for the binary

	mu     sync.Mutex // one block after another
	market *market
	head   uint64
	logs   int
}

// newChain starts anvil and writes the history: every other block has a transaction of 100 logs, or more where the
// history would not fit otherwise.
func newChain(ctx context.Context, cfg config) (*chain, error) {
	anvil, err := devchain.StartAnvil(ctx, devchain.AnvilConfig{
		Binary: filepath.Join(cfg.repository, "contracts/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil"),
	})
	if err != nil {
		return nil, err
	}
	c := &chain{Anvil: anvil, rpc: anvil.Client().Client()}
	if err := c.deploy(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("deploy: %w", err), anvil.Close())
	}
	if err := c.write(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("write history: %w", err), anvil.Close())
	}
	return c, nil
}

func (c *chain) deploy(ctx context.Context, cfg config) error {
	var err error
	if c.market, err = newMarket(cfg.seed); err != nil {
		return err
	}
	if c.key, err = crypto.ToECDSA(crypto.Keccak256([]byte("scribe"))); err != nil {
		return err
	}
	c.from = crypto.PubkeyToAddress(c.key.PublicKey)
	code, err := contracts.Bytecode("Scribe")
	if err != nil {
		return err
	}
	funds := (*hexutil.Big)(new(big.Int).Lsh(big.NewInt(1), 100))
	if err := c.rpc.CallContext(ctx, nil, "anvil_setBalance", c.from, funds); err != nil {
		return err
	}
	vault, registry := crypto.CreateAddress(c.from, 0), crypto.CreateAddress(c.from, 1)
	if c.deployment, c.file, err = deploymentOf(cfg.dir, vault, registry); err != nil {
		return err
	}
	if err := errors.Join(c.send(ctx, nil, code), c.send(ctx, nil, code)); err != nil {
		return err
	}
	assets, err := c.market.assetsSet()
	if err != nil {
		return err
	}
	c.logs += marketAssets
	if err := c.send(ctx, &registry, assets); err != nil {
		return err
	}
	return c.mine(ctx, 2)
}

// deploymentOf is a deployment of nothing else, and a file of it for the binary.
func deploymentOf(dir string, vault, registry common.Address) (d contracts.Deployment, file string, err error) {
	d = contracts.Deployment{
		ChainID: chainID, StartBlock: 1, DealVault: vault, AssetRegistry: registry, USDG: usdg,
		PoolManager: nowhere("pool manager"), PositionManager: nowhere("position manager"),
		StateView: nowhere("state view"), V4Quoter: nowhere("quoter"),
	}
	file = filepath.Join(dir, "deployment.json")
	f, err := os.Create(file)
	if err != nil {
		return d, file, err
	}
	return d, file, errors.Join(d.Write(f), f.Close())
}

// nowhere is an address without a contract.
func nowhere(name string) common.Address {
	return common.BytesToAddress(crypto.Keccak256([]byte(name)))
}

// write mines the history.
func (c *chain) write(ctx context.Context, cfg config) error {
	perBlock := max(1, cfg.logs/(fullBlocks*logsPerTx))
	for i := 0; c.logs < cfg.logs; i++ {
		n := min(logsPerTx, cfg.logs-c.logs)
		var err error
		if i%registryEach == registryEach-1 {
			err = c.send(ctx, &c.deployment.AssetRegistry, c.market.openings(n))
		} else {
			err = c.send(ctx, &c.deployment.DealVault, c.market.logs(n))
		}
		if err == nil {
			c.logs += n
		}
		if full := i%perBlock == perBlock-1 || c.logs == cfg.logs; err == nil && full {
			err = c.mine(ctx, 2)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// send puts a transaction into the pool.
func (c *chain) send(ctx context.Context, to *common.Address, data []byte) error {
	tx, err := types.SignNewTx(c.key, types.LatestSignerForChainID(big.NewInt(chainID)), &types.DynamicFeeTx{
		ChainID: big.NewInt(chainID), Nonce: c.nonce, GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(1e10),
		Gas: scribeGas, To: to, Data: data,
	})
	if err != nil {
		return err
	}
	raw, err := tx.MarshalBinary()
	if err != nil {
		return err
	}
	c.nonce++
	return c.rpc.CallContext(ctx, nil, "eth_sendRawTransaction", hexutil.Bytes(raw))
}

// mine mines blocks, the pool's transactions in the first.
func (c *chain) mine(ctx context.Context, n uint64) error {
	c.head += n
	return c.rpc.CallContext(ctx, nil, "anvil_mine", hexutil.Uint64(n))
}

// block mines a block with so many logs of the vault.
func (c *chain) block(ctx context.Context, logs int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.send(ctx, &c.deployment.DealVault, c.market.logs(logs)); err != nil {
		return err
	}
	c.logs += logs
	return c.mine(ctx, 1)
}

// change sends new terms of a deal, with the given cap. It does not mine the block.
func (c *chain) change(ctx context.Context, amount uint64) (id uint64, err error) {
	d := c.market.pick(c.market.listed)
	d.cap = amount
	log := encode(c.market.vault["DealTermsUpdated"], d.id, d.cap, d.cap/2, uint64(week), c.market.now+4*week, termsHash(d.id))
	c.logs++
	return d.id, c.send(ctx, &c.deployment.DealVault, log)
}

// flags tell the binary where the chain is.
func (c *chain) flags(polling bool) []string {
	endpoints := []string{c.HTTP()}
	if !polling {
		endpoints = []string{c.WS(), c.HTTP()}
	}
	return []string{"--rpc=" + strings.Join(endpoints, ","), "--deployment=" + c.file}
}

func asBig(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
