package valuation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/chain"
)

const (
	saleOfDepth = 100       // a sale is this fraction of the amount that moves the price by 2 %
	saleGas     = 1_500_000 // of a swap: many times what one needs, and too little for a result of a megabyte
	saleKeepBps = 9000      // what must come back of the price after the pool's fees; with less, the token kept some

	// saleHeld is how long half of the bought amount is held: the longest deal with its grace period.
	saleHeld = (21 + 30) * 24 * hour
	// saleGasPrice is the gas price on a chain without a base fee.
	saleGasPrice = 1_000_000_000
)

// Calls of a sale's simulation, in order. The last one is in a block of its own.
const (
	saleCreate = iota
	saleFund
	saleAllow
	saleBuy
	saleApprove
	saleSell
	saleSellLater
	saleCalls
)

// poolKey is Uniswap's PoolKey, with the fields in ABI order.
type poolKey struct {
	Currency0, Currency1 common.Address
	Fee, TickSpacing     *big.Int
	Hooks                common.Address
}

func keyOf(p *pool) poolKey {
	return poolKey{p.Currency0, p.Currency1, new(big.Int).SetUint64(uint64(p.Fee)), big.NewInt(int64(p.TickSpacing)), p.Hooks}
}

// sale is a token bought and sold again in a pool, in a simulation of the next block and of a later one. The pool's
// other currency comes from the PoolManager, which holds the currencies of all pools.
type sale struct {
	token, against common.Address
	pool           *pool
	amount         *big.Int       // paid for the token
	baseFee        *big.Int       // of a block; nil: the chain has none
	buyer          common.Address // account that buys and sells it
	salt           common.Hash    // of the probe
}

// newSale is a sale by a random account, through a probe with random code: a token could let known ones through. For
// the same reason the buyer has ether, pays for gas as others do, and sells a part much later.
func newSale(token common.Address, p *pool, baseFee *big.Int) *sale {
	against, _ := p.other(token)
	s := &sale{
		token: token, against: against, pool: p, baseFee: baseFee,
		amount: new(big.Int).Quo(p.depthIn(against), big.NewInt(saleOfDepth)),
	}
	_, _ = rand.Read(s.buyer[:]) // never fails
	_, _ = rand.Read(s.salt[:])
	return s
}

// sellable reports whether an amount of a token that is bought in a pool can be sold there again, for nearly what was
// paid. Nil: unknown, because the node cannot simulate it.
func (c *chainReader) sellable(ctx context.Context, s *state, token common.Address, p *pool, baseFee *big.Int) (*bool, error) {
	sold := newSale(token, p, baseFee)
	if sold.amount.Sign() == 0 {
		return nil, nil //nolint:nilnil // too little depth to judge
	}
	blocks, err := sold.blocks(c.cfg.Deployment.PoolManager, s.at.Timestamp)
	if err != nil {
		return nil, err
	}
	said, err := chain.Both(ctx, c.client, "whether a token can be sold", func(ctx context.Context) (verdict, error) {
		results, err := c.client.Simulate(ctx, s.at.Hash, blocks...)
		_, refused := errors.AsType[*chain.NodeError](err)
		switch {
		case errors.Is(err, chain.ErrUnsupported):
			return verdict{lacks: true}, nil
		case refused:
			return verdict{}, nil // the node cannot simulate it
		case err != nil:
			return verdict{}, fmt.Errorf("buy and sell token %s: %w", token, err)
		}
		return verdict{sellable: sold.judge(results)}, nil
	}, func(one, other verdict) bool { return other.lacks || sameAnswer(one.sellable, other.sellable) })
	if errors.Is(err, chain.ErrDiffer) && !errors.Is(err, errBlockGone) {
		return nil, nil //nolint:nilnil // unknown
	}
	return said.sellable, err
}

// verdict is a node's result of a simulated sale.
type verdict struct {
	lacks    bool // the node cannot simulate, so its verdict does not count
	sellable *bool
}

func sameAnswer(one, other *bool) bool {
	return one == other || one != nil && other != nil && *one == *other
}

// blocks create the probe and pay the buyer, who then buys, approves and sells half; and the other half in a later
// block.
func (s *sale) blocks(manager common.Address, after uint64) ([]chain.SimulatedBlock, error) {
	probe, err := contracts.ABI("SaleProbe")
	if err != nil {
		return nil, err
	}
	code, err := contracts.Bytecode("SaleProbe")
	if err != nil {
		return nil, err
	}
	swap := func(zeroForOne bool, parts int64) []byte {
		data, packErr := probe.Pack("swap", keyOf(s.pool), zeroForOne, big.NewInt(parts))
		err = errors.Join(err, packErr)
		return data
	}
	price := s.baseFee
	if price == nil {
		price = big.NewInt(saleGasPrice)
	}
	buyer, at := s.buyer, crypto.CreateAddress(s.buyer, 0)
	buys, sells := s.token == s.pool.Currency1, s.token == s.pool.Currency0
	all := make([]chain.Call, saleCalls)
	all[saleCreate] = chain.Call{New: true, Data: slices.Concat(code, common.LeftPadBytes(manager[:], 32), s.salt[:]), Gas: saleGas}
	all[saleBuy] = chain.Call{To: at, Data: swap(buys, 1), Gas: saleGas}
	all[saleApprove] = chain.Call{To: s.token, Data: approve(at), Gas: viewGas}
	all[saleSell] = chain.Call{To: at, Data: swap(sells, 2), Gas: saleGas}
	all[saleSellLater] = chain.Call{To: at, Data: swap(sells, 1), Gas: saleGas}
	if s.against == (common.Address{}) {
		all[saleFund] = chain.Call{To: buyer, Value: s.amount, Gas: viewGas}
		all[saleAllow] = chain.Call{To: buyer, Gas: viewGas}
		all[saleBuy].Value = s.amount
	} else {
		all[saleFund] = chain.Call{To: s.against, Data: erc20("transfer(address,uint256)", buyer, s.amount), Gas: viewGas}
		all[saleAllow] = chain.Call{To: s.against, Data: approve(at), Gas: viewGas}
	}
	gas := new(big.Int)
	for i := range all {
		if all[i].From = buyer; i == saleFund {
			all[i].From = manager
			continue
		}
		all[i].Price = price
		gas.Add(gas, new(big.Int).SetUint64(all[i].Gas))
	}
	has := gas.Mul(gas, price)
	has.Add(has, new(big.Int).SetBytes(s.salt[:8])) // and a random amount more
	return []chain.SimulatedBlock{
		{Timestamp: after + 1, BaseFee: s.baseFee, Balances: map[common.Address]*big.Int{buyer: has}, Calls: all[:saleSellLater]},
		{Timestamp: after + 1 + saleHeld, BaseFee: s.baseFee, Calls: all[saleSellLater:]},
	}, err
}

// approve allows all that an account ever has.
func approve(spender common.Address) []byte {
	return erc20("approve(address,uint256)", spender, new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)))
}

// erc20 packs a method of an account and an amount.
func erc20(signature string, account common.Address, amount *big.Int) []byte {
	data := append(contracts.Selector(signature), common.LeftPadBytes(account[:], 32)...)
	return append(data, common.BigToHash(amount).Bytes()...)
}

// judge evaluates the simulation. A failure before the buyer has the money says nothing about the token.
func (s *sale) judge(results []chain.Simulation) *bool {
	for i, r := range results {
		if r.Err != nil {
			if i < saleBuy {
				return nil
			}
			return new(false)
		}
	}
	got := new(big.Int).SetBytes(results[saleSell].Data)
	if later := new(big.Int).SetBytes(results[saleSellLater].Data); later.Cmp(got) < 0 {
		got = later
	}
	left := big.NewInt(int64(1_000_000 - s.pool.amm.LPFee))
	want := new(big.Int).Mul(s.amount, new(big.Int).Mul(left, left))
	want.Mul(want, big.NewInt(saleKeepBps))
	return new(got.Mul(got, big.NewInt(2*1_000_000*1_000_000*bpsOfAll)).Cmp(want) >= 0) // of half of it
}
