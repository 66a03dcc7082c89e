package x402

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// Sender is what a relayer needs of the chain beside reading it; ethclient.Client is one.
type Sender interface {
	Reader
	NonceAt(ctx context.Context, account common.Address, block *big.Int) (uint64, error)
	PendingNonceAt(ctx context.Context, account common.Address) (uint64, error)
	BalanceAt(ctx context.Context, account common.Address, block *big.Int) (*big.Int, error)
	SuggestGasTipCap(ctx context.Context) (*big.Int, error)
	SendTransaction(ctx context.Context, tx *types.Transaction) error
}

// RelayerConfig bounds what a relayer spends.
type RelayerConfig struct {
	Gas       uint64        // limit of a transaction: 200,000 is enough for the token, and for most contract wallets
	MaxFeeGas *big.Int      // wei a gas at most; nil: 50 gwei
	BumpAfter time.Duration // that a transaction waits before it is sent with a higher fee: 10 s
	Timeout   time.Duration // of a call to the node: 10 s
	Now       func() time.Time
}

func (c RelayerConfig) withDefaults() RelayerConfig {
	if c.Gas == 0 {
		c.Gas = 200_000
	}
	if c.MaxFeeGas == nil {
		c.MaxFeeGas = big.NewInt(50_000_000_000)
	}
	if c.BumpAfter == 0 {
		c.BumpAfter = 10 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Relayer submits authorizations from an account of ours that holds gas and nothing else.
//
// Invariants:
//  1. One transaction at a time is given its nonce, recorded and sent, so that nonces leave without a gap.
//  2. Nothing leaves that was not recorded.
//  3. The next nonce is the chain's word, not ours: what was recorded and never left frees its nonce, and what the
//     node dropped is sent again before anything behind it.
//  4. At most maxOpen transactions wait to be mined.
//
// A key belongs to one process at a time. Two would take each other's nonces: nobody would be charged twice, since an
// authorization is used once, but gas is lost and payments wait.
type Relayer struct {
	cfg   RelayerConfig
	key   *ecdsa.PrivateKey
	from  common.Address
	terms *Terms
	chain Sender

	mu   sync.Mutex
	open map[uint64]*sent // by nonce: sent, and not known to be mined
}

type sent struct {
	tx     *types.Transaction
	at     time.Time
	record Record
}

const (
	maxOpen     = 256
	bumpPercent = 125 // nodes want ten percent more at least
)

// ErrBusy is a relayer with too many transactions that wait.
var ErrBusy = errors.New("too many settlements wait to be mined")

// NewRelayer returns a relayer for key.
func NewRelayer(cfg RelayerConfig, terms *Terms, chain Sender, key *ecdsa.PrivateKey) *Relayer {
	return &Relayer{
		cfg: cfg.withDefaults(), key: key, from: crypto.PubkeyToAddress(key.PublicKey), terms: terms, chain: chain,
		open: make(map[uint64]*sent),
	}
}

// Address is the account that pays for gas.
func (r *Relayer) Address() common.Address { return r.from }

// Balance is what the account has left, in wei.
func (r *Relayer) Balance(ctx context.Context) (*big.Int, error) {
	return r.chain.BalanceAt(ctx, r.from, nil)
}

// Settle signs, records and sends one transaction.
func (r *Relayer) Settle(ctx context.Context, s *Signed, record Record) error {
	return r.Send(ctx, r.terms.Token, s.Calldata(), record)
}

// Send submits a call of a contract: a settlement, or a refund from an account that holds tokens.
func (r *Relayer) Send(ctx context.Context, to common.Address, data []byte, record Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) >= maxOpen {
		return ErrBusy
	}
	tip, fee, err := r.fees(ctx)
	if err != nil {
		return err
	}
	next, err := r.next(ctx)
	if err != nil {
		return err
	}
	return r.send(ctx, &types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(r.terms.ChainID), Nonce: next, GasTipCap: tip, GasFeeCap: fee,
		Gas: r.cfg.Gas, To: &to, Data: data,
	}, record)
}

// Resume takes up an attempt that another process, or this one before, recorded. One whose nonce is taken by another
// transaction can never be mined: the payment is settled anew.
func (r *Relayer) Resume(ctx context.Context, s *Signed, a Attempt, record Record) error {
	var tx types.Transaction
	if err := tx.UnmarshalBinary(a.Raw); err != nil {
		return fmt.Errorf("read recorded attempt %s: %w", a.Hash, err)
	}
	sender, err := types.Sender(types.LatestSignerForChainID(new(big.Int).SetUint64(r.terms.ChainID)), &tx)
	if err != nil || sender != r.from {
		return r.Settle(ctx, s, record) // another relayer's: it may never send it
	}
	r.mu.Lock()
	mined, err := r.mined(ctx)
	if err != nil {
		r.mu.Unlock()
		return err
	}
	other := r.open[tx.Nonce()]
	if tx.Nonce() < mined || other != nil && other.tx.Hash() != tx.Hash() {
		r.mu.Unlock()
		return r.Settle(ctx, s, record)
	}
	defer r.mu.Unlock()
	pending, err := r.chain.PendingNonceAt(ctx, r.from)
	if err != nil {
		return fmt.Errorf("read the relayer's pending nonce: %w", err)
	}
	if tx.Nonce() > pending {
		return fmt.Errorf("attempt %s: nonce %d is ahead of the chain's %d", a.Hash, tx.Nonce(), pending)
	}
	r.open[tx.Nonce()] = &sent{tx: &tx, at: r.cfg.Now(), record: record}
	return r.broadcast(ctx, &tx)
}

// next is the first nonce that neither the node nor we have in use. What the node no longer knows of is sent again.
func (r *Relayer) next(ctx context.Context) (uint64, error) {
	if _, err := r.mined(ctx); err != nil {
		return 0, err
	}
	next, err := r.chain.PendingNonceAt(ctx, r.from)
	if err != nil {
		return 0, fmt.Errorf("read the relayer's pending nonce: %w", err)
	}
	for ; r.open[next] != nil; next++ {
		if err := r.broadcast(ctx, r.open[next].tx); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// mined forgets what is on the chain.
func (r *Relayer) mined(ctx context.Context) (uint64, error) {
	next, err := r.chain.NonceAt(ctx, r.from, nil)
	if err != nil {
		return 0, fmt.Errorf("read the relayer's nonce: %w", err)
	}
	for nonce := range r.open {
		if nonce < next {
			delete(r.open, nonce)
		}
	}
	return next, nil
}

// fees are twice the base fee and the tip that the node suggests, within the ceiling.
func (r *Relayer) fees(ctx context.Context) (tip, fee *big.Int, err error) {
	head, err := r.chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("read the payment chain's head: %w", err)
	}
	if tip, err = r.chain.SuggestGasTipCap(ctx); err != nil {
		return nil, nil, fmt.Errorf("read the payment chain's tip: %w", err)
	}
	base := new(big.Int)
	if head.BaseFee != nil {
		base = head.BaseFee
	}
	least := new(big.Int).Add(base, tip)
	if least.Cmp(r.cfg.MaxFeeGas) > 0 {
		return nil, nil, fmt.Errorf("%w: %s wei a gas, the ceiling is %s", ErrFeeCeiling, least, r.cfg.MaxFeeGas)
	}
	fee = new(big.Int).Add(least, base)
	if fee.Cmp(r.cfg.MaxFeeGas) > 0 {
		fee = r.cfg.MaxFeeGas
	}
	return tip, fee, nil
}

func (r *Relayer) send(ctx context.Context, body *types.DynamicFeeTx, record Record) error {
	tx, err := types.SignNewTx(r.key, types.LatestSignerForChainID(body.ChainID), body)
	if err != nil {
		return fmt.Errorf("sign settlement: %w", err)
	}
	raw, err := tx.MarshalBinary()
	if err != nil {
		return fmt.Errorf("encode settlement: %w", err)
	}
	if err := record(ctx, Attempt{Hash: tx.Hash(), Raw: raw, Nonce: tx.Nonce()}); err != nil {
		return fmt.Errorf("record settlement %s: %w", tx.Hash(), err)
	}
	r.open[tx.Nonce()] = &sent{tx: tx, at: r.cfg.Now(), record: record}
	err = r.broadcast(ctx, tx)
	if errors.Is(err, ErrNoGas) {
		delete(r.open, tx.Nonce()) // it was refused: its nonce is free
	}
	return err
}

// broadcast sends tx. That the node has it, or has mined it, is as good.
func (r *Relayer) broadcast(ctx context.Context, tx *types.Transaction) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	err := r.chain.SendTransaction(ctx, tx)
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error()) // all that nodes agree on
	switch {
	case strings.Contains(text, "already known"), strings.Contains(text, "nonce too low"),
		strings.Contains(text, "already imported"), strings.Contains(text, "replacement transaction underpriced"):
		return nil
	case strings.Contains(text, "insufficient funds"):
		return fmt.Errorf("%w: %s has too little", ErrNoGas, r.from)
	}
	return fmt.Errorf("send settlement %s: %w", tx.Hash(), err)
}

// Bump sends what has waited too long again with a higher fee, at the same nonce. It is to be called every few
// seconds.
func (r *Relayer) Bump(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.open) == 0 {
		return nil
	}
	next, err := r.mined(ctx)
	if err != nil {
		return err
	}
	// The others wait for the first: a higher fee on them would buy nothing.
	first := r.open[next]
	if first == nil || r.cfg.Now().Sub(first.at) < r.cfg.BumpAfter {
		return nil
	}
	tip, fee, err := r.fees(ctx)
	if err != nil {
		return err
	}
	tip, fee = higher(tip, first.tx.GasTipCap()), higher(fee, first.tx.GasFeeCap())
	if fee.Cmp(r.cfg.MaxFeeGas) > 0 {
		first.at = r.cfg.Now()
		return errors.Join(r.broadcast(ctx, first.tx), fmt.Errorf("%w: nonce %d waits", ErrFeeCeiling, next))
	}
	return r.send(ctx, &types.DynamicFeeTx{
		ChainID: first.tx.ChainId(), Nonce: next, GasTipCap: tip, GasFeeCap: fee, Gas: first.tx.Gas(), To: first.tx.To(), Data: first.tx.Data(),
	}, first.record)
}

// higher is the greater of what is suggested now and what a node takes as a replacement.
func higher(suggested, before *big.Int) *big.Int {
	least := new(big.Int).Mul(before, big.NewInt(bumpPercent))
	least.Div(least, big.NewInt(100)).Add(least, common.Big1)
	if least.Cmp(suggested) > 0 {
		return least
	}
	return suggested
}
