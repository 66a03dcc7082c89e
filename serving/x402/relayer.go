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

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// Sender is what a relayer needs of the chain besides reading it; ethclient.Client is one.
type Sender interface {
	ChainReader
	NonceAt(ctx context.Context, account common.Address, block *big.Int) (uint64, error)
	PendingNonceAt(ctx context.Context, account common.Address) (uint64, error)
	BalanceAt(ctx context.Context, account common.Address, block *big.Int) (*big.Int, error)
	SuggestGasTipCap(ctx context.Context) (*big.Int, error)
	SendTransaction(ctx context.Context, tx *types.Transaction) error
}

// DefaultConfirmations are those after which a block counts as final.
const DefaultConfirmations = 10

// RelayerConfig bounds what a relayer spends.
type RelayerConfig struct {
	MaxFeeGas *big.Int      // maximum wei per gas
	BumpAfter time.Duration // after which a pending transaction's fee is raised
	Timeout   time.Duration // of a call to the node
	Now       func() time.Time

	Nonces        Nonces // nil: no other process uses the key
	Confirmations uint64 // with Nonces: confirmations after which a nonce is final
}

// DefaultRelayerConfig pays at most 50 gwei.
func DefaultRelayerConfig() RelayerConfig {
	return RelayerConfig{
		MaxFeeGas: big.NewInt(50_000_000_000), BumpAfter: 10 * time.Second, Timeout: 10 * time.Second, Now: time.Now,
		Confirmations: DefaultConfirmations,
	}
}

// Validate returns all errors of the configuration.
func (c *RelayerConfig) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf("relayer: "+format, args...))
		}
	}
	fault(c.MaxFeeGas == nil, "MaxFeeGas: missing")
	fault(c.MaxFeeGas != nil && c.MaxFeeGas.Sign() <= 0, "MaxFeeGas: %s is not positive", c.MaxFeeGas)
	fault(c.BumpAfter <= 0, "BumpAfter: %s is not positive", c.BumpAfter)
	fault(c.Timeout <= 0, "Timeout: %s is not positive", c.Timeout)
	fault(c.Now == nil, "Now: missing")
	fault(c.Nonces != nil && c.Confirmations == 0, "Confirmations: 0 is not positive")
	return errors.Join(faults...)
}

// Nonces assigns a relayer's nonces, for all processes that use its key.
type Nonces interface {
	// Take returns an authorization's nonce: its present one, unless that is below mined, else the next. Nonces
	// below deep are final.
	Take(ctx context.Context, relayer common.Address, a *Authorization, mined, deep uint64) (uint64, error)
	// Next is the first unused nonce, of a chain whose next one is mined.
	Next(ctx context.Context, relayer common.Address, mined uint64) (uint64, error)
	// Recorded returns the attempt at a nonce, nil if none was recorded, and how to record a replacement, nil
	// if none is wanted.
	Recorded(ctx context.Context, relayer common.Address, nonce uint64) (*Attempt, Record, error)
}

// Relayer submits authorizations from our account, which holds gas and nothing else.
//
// Invariants:
//  1. An authorization has one nonce at a time, and a nonce one authorization. Without Nonces only one
//     transaction at a time is assigned its nonce, recorded and sent; with Nonces they serialise that.
//  2. No transaction is sent before it is recorded, except an empty one that fills a gap.
//  3. No nonce stays unused: transactions dropped by the node are sent again, and abandoned nonces are filled.
//  4. At most maxOpen transactions are pending.
//
// Without Nonces only one process may use a key. Two would use the same nonces: no payer would be charged twice,
// since an authorization is used once, but gas would be lost and payments delayed.
type Relayer struct {
	cfg   RelayerConfig
	key   *ecdsa.PrivateKey
	from  common.Address
	terms *Terms
	chain Sender

	alone sync.Mutex // without Nonces: held from taking a nonce until its broadcast

	mu    sync.Mutex
	open  map[uint64]*sent     // by nonce: sent by this process and not known to be mined
	first uint64               // the next nonce of the chain,
	since time.Time            // since when it is
	gaps  map[uint64]time.Time // nonces that were taken and not recorded, and since when
}

type sent struct {
	tx     *types.Transaction
	at     time.Time
	record Record
}

const (
	maxOpen     = 256
	bumpPercent = 125 // nodes require at least ten percent more
	plainGas    = 21_000
)

// ErrBusy: too many transactions of the relayer are pending.
var ErrBusy = errors.New("too many settlements are waiting to be mined")

// ErrDecided is returned by a Record if the payment is already decided: the attempt is not sent.
var ErrDecided = errors.New("the payment was already decided")

// NewRelayer returns a relayer for key.
func NewRelayer(cfg RelayerConfig, terms *Terms, chain Sender, key *ecdsa.PrivateKey) (*Relayer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Relayer{
		cfg: cfg, key: key, from: crypto.PubkeyToAddress(key.PublicKey), terms: terms, chain: chain,
		open: make(map[uint64]*sent),
	}, nil
}

// Address is the account that pays for gas.
func (r *Relayer) Address() common.Address { return r.from }

// Settle signs, records and sends one transaction.
func (r *Relayer) Settle(ctx context.Context, s *Signed, record Record) error {
	if r.cfg.Nonces == nil {
		r.alone.Lock()
		defer r.alone.Unlock()
	}
	tip, fee, err := r.fees(ctx)
	if err != nil {
		return err
	}
	nonce, err := r.nonce(ctx, &s.Authorization)
	if err != nil {
		return err
	}
	return r.send(ctx, &types.DynamicFeeTx{
		ChainID: new(big.Int).SetUint64(r.terms.ChainID), Nonce: nonce, GasTipCap: tip, GasFeeCap: fee,
		Gas: transferGas, To: &r.terms.Token, Data: s.Calldata(),
	}, record)
}

// Resume continues an attempt that was recorded earlier, by any process. If its nonce was used by another
// transaction it can never be mined, and the payment is settled with a new one.
func (r *Relayer) Resume(ctx context.Context, s *Signed, a Attempt, record Record) error {
	tx, err := r.own(a)
	if err != nil {
		return err
	}
	if tx == nil {
		return r.Settle(ctx, s, record) // of another relayer, which may never send it
	}
	mined, err := r.mined(ctx)
	if err != nil {
		return err
	}
	if tx.Nonce() < mined {
		if _, err := r.chain.TransactionReceipt(ctx, tx.Hash()); !errors.Is(err, ethereum.NotFound) {
			return err // it was mined: its logs decide, and another would only cost gas
		}
		return r.Settle(ctx, s, record)
	}
	other := r.waiting(tx.Nonce())
	switch {
	case r.cfg.Nonces != nil:
		if other != nil {
			tx = other.tx // sent since, with a higher fee
		}
	case other != nil && other.tx.Hash() != tx.Hash():
		return r.Settle(ctx, s, record)
	default:
		pending, err := r.chain.PendingNonceAt(ctx, r.from)
		if err != nil {
			return fmt.Errorf("read the relayer's pending nonce: %w", err)
		}
		if tx.Nonce() > pending {
			return fmt.Errorf("attempt %s: nonce %d is ahead of the chain's nonce %d", a.Hash, tx.Nonce(), pending)
		}
	}
	if other == nil {
		r.keep(&sent{tx: tx, at: r.cfg.Now(), record: record})
	}
	return r.broadcast(ctx, tx)
}

// own decodes a recorded attempt; nil: it is another relayer's.
func (r *Relayer) own(a Attempt) (*types.Transaction, error) {
	var tx types.Transaction
	if err := tx.UnmarshalBinary(a.Raw); err != nil {
		return nil, fmt.Errorf("read recorded attempt %s: %w", a.Hash, err)
	}
	sender, err := types.Sender(types.LatestSignerForChainID(new(big.Int).SetUint64(r.terms.ChainID)), &tx)
	if err != nil || sender != r.from {
		return nil, nil //nolint:nilerr // not signed by us
	}
	return &tx, nil
}

func (r *Relayer) waiting(nonce uint64) *sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open[nonce]
}

func (r *Relayer) keep(s *sent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[s.tx.Nonce()] = s
}

// nonce returns the nonce for the next transaction.
func (r *Relayer) nonce(ctx context.Context, a *Authorization) (uint64, error) {
	mined, err := r.mined(ctx)
	if err != nil {
		return 0, err
	}
	if r.cfg.Nonces == nil {
		return r.next(ctx)
	}
	head, err := r.chain.HeaderByNumber(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("read the payment chain's head: %w", err)
	}
	number := head.Number.Uint64()
	deep, err := r.chain.NonceAt(ctx, r.from, new(big.Int).SetUint64(number-min(number, r.cfg.Confirmations)))
	if err != nil {
		return 0, fmt.Errorf("read the relayer's nonce: %w", err)
	}
	return r.cfg.Nonces.Take(ctx, r.from, a, mined, deep)
}

// next is the first nonce that neither the node nor we have used. Transactions that the node has lost are sent
// again.
func (r *Relayer) next(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	busy := len(r.open) >= maxOpen
	r.mu.Unlock()
	if busy {
		return 0, ErrBusy
	}
	next, err := r.chain.PendingNonceAt(ctx, r.from)
	if err != nil {
		return 0, fmt.Errorf("read the relayer's pending nonce: %w", err)
	}
	for ; ; next++ {
		waits := r.waiting(next)
		if waits == nil {
			return next, nil
		}
		if err := r.broadcast(ctx, waits.tx); err != nil {
			return 0, err
		}
	}
}

// mined drops the transactions that are mined.
func (r *Relayer) mined(ctx context.Context) (uint64, error) {
	next, err := r.chain.NonceAt(ctx, r.from, nil)
	if err != nil {
		return 0, fmt.Errorf("read the relayer's nonce: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for nonce := range r.open {
		if nonce < next {
			delete(r.open, nonce)
		}
	}
	return next, nil
}

// fees are twice the base fee plus the node's suggested tip, within the ceiling.
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
		return nil, nil, fmt.Errorf("%w: %s wei per gas, the ceiling is %s", ErrFeeCeiling, least, r.cfg.MaxFeeGas)
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
	r.keep(&sent{tx: tx, at: r.cfg.Now(), record: record})
	err = r.broadcast(ctx, tx)
	if errors.Is(err, ErrNoGas) {
		r.forget(tx.Nonce()) // refused: its nonce is free, or it is sent again as recorded
	}
	return err
}

func (r *Relayer) forget(nonce uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, nonce)
}

// broadcast sends tx. It is fine if the node already has it, or has mined it.
func (r *Relayer) broadcast(ctx context.Context, tx *types.Transaction) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	err := r.chain.SendTransaction(ctx, tx)
	if err == nil {
		return nil
	}
	text := strings.ToLower(err.Error()) // nodes agree only on the text
	switch {
	case strings.Contains(text, "already known"), strings.Contains(text, "nonce too low"),
		strings.Contains(text, "already imported"), strings.Contains(text, "replacement transaction underpriced"):
		return nil
	case strings.Contains(text, "insufficient funds"):
		return fmt.Errorf("%w: the balance of %s is too low", ErrNoGas, r.from)
	}
	return fmt.Errorf("send settlement %s: %w", tx.Hash(), err)
}
