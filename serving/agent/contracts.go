package agent

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/chain"
)

// market is the deployment's contracts and their ABIs.
type market struct {
	dep      contracts.Deployment
	vault    abi.ABI
	registry abi.ABI
	token    abi.ABI // any ERC-20, with paused() if it has that
	errors   map[[4]byte]abi.Error
}

func newMarket(dep contracts.Deployment) (*market, error) {
	m := &market{dep: dep, errors: map[[4]byte]abi.Error{}}
	for _, c := range []struct {
		name string
		abi  *abi.ABI
	}{{"DealVault", &m.vault}, {"AssetRegistry", &m.registry}, {"USDG", &m.token}} {
		parsed, err := contracts.ABI(c.name)
		if err != nil {
			return nil, err
		}
		*c.abi = parsed
		for _, e := range parsed.Errors {
			m.errors[[4]byte(e.ID[:4])] = e
		}
	}
	return m, nil
}

// reads are calls at one block, executed in one round trip.
type reads struct {
	at    common.Hash
	calls []*chain.Request
	after []func() error
	taken bool // the results are
}

// call reads a view function and passes the results to take; an invalid result is an *errMismatch.
func (r *reads) call(to common.Address, of *abi.ABI, method string, take func([]any) error, args ...any) {
	r.read(to, of, method, 0, args, func(values []any, err error) error {
		if unanswered(err) {
			return err
		}
		if err != nil {
			return &errMismatch{fmt.Sprintf("the contract at %s gives no valid answer to %s", lower(to), method)}
		}
		return take(values)
	})
}

// unanswered reports whether the node, and not the contract, failed to answer a call.
func unanswered(err error) bool {
	_, refused := errors.AsType[*chain.NodeError](err)
	return refused || errors.Is(err, chain.ErrUnsupported)
}

// probe reads a view function that may not exist, or may revert: then take gets nil.
func (r *reads) probe(to common.Address, of *abi.ABI, method string, take func([]any), args ...any) {
	r.read(to, of, method, 0, args, func(values []any, err error) error {
		if unanswered(err) {
			return err
		}
		if err != nil {
			values = nil
		}
		take(values)
		return nil
	})
}

// strangerGas limits a call of a contract that the caller of the API names: several times what a token behind a proxy
// needs, and too little for an answer that is too large or takes seconds.
const strangerGas = 500_000

// ask reads a view of a contract that the caller of the API names, which may be any contract: take gets the error if it
// does not answer.
func (r *reads) ask(to common.Address, of *abi.ABI, method string, take func([]any, error), args ...any) {
	r.read(to, of, method, strangerGas, args, func(values []any, err error) error {
		take(values, err)
		return nil
	})
}

// pauses are the views of a token of which either says that it cannot be transferred now.
var pauses = [][]byte{contracts.Selector("paused()"), contracts.Selector("oraclePaused()")}

// paused reads whether a token is paused, and calls found if so. A token that does not answer is not.
func (r *reads) paused(token common.Address, found func()) {
	for _, selector := range pauses {
		var result hexutil.Bytes
		request := chain.CallAt(r.at, chain.Call{To: token, Data: selector, Gas: strangerGas}, &result)
		r.calls = append(r.calls, request)
		r.after = append(r.after, func() error {
			if request.Err == nil && common.BytesToHash(result) == (common.Hash{31: 1}) {
				found()
			}
			return nil
		})
	}
}

func (r *reads) read(to common.Address, of *abi.ABI, method string, gas uint64, args []any, then func([]any, error) error) {
	data, err := of.Pack(method, args...)
	if err != nil {
		panic(fmt.Errorf("agent: pack %s: %w", method, err)) // the arguments are our own
	}
	var result hexutil.Bytes
	request := chain.CallAt(r.at, chain.Call{To: to, Data: data, Gas: gas}, &result)
	r.calls = append(r.calls, request)
	r.after = append(r.after, func() error {
		if request.Err != nil {
			return then(nil, request.Err)
		}
		values, err := of.Unpack(method, result)
		return then(values, err)
	})
}

// code reads whether there is a contract at an address.
func (r *reads) code(account common.Address, take func(bool) error) {
	var result hexutil.Bytes
	request := chain.CodeAt(r.at, account, &result)
	r.calls = append(r.calls, request)
	r.after = append(r.after, func() error {
		if request.Err != nil {
			return request.Err
		}
		return take(len(result) > 0)
	})
}

// balance reads the ether balance.
func (r *reads) balance(account common.Address, into *big.Int) {
	var result hexutil.Big
	request := chain.BalanceAt(r.at, account, &result)
	r.calls = append(r.calls, request)
	r.after = append(r.after, func() error {
		into.Set(result.ToInt())
		return request.Err
	})
}

// run executes the calls.
func (r *reads) run(ctx context.Context, c *chain.Client) error {
	if err := c.Batch(ctx, r.calls...); err != nil {
		return err
	}
	return r.take()
}

// take takes the results of calls that were executed.
func (r *reads) take() error {
	var errs []error
	for _, after := range r.after {
		errs = append(errs, after())
	}
	err := errors.Join(errs...)
	r.taken = err == nil
	return err
}

// identify checks that the contracts are those of the deployment.
func (m *market) identify(r *reads) {
	r.code(m.dep.DealVault, func(has bool) error {
		if !has {
			return &errMismatch{"there is no contract at the vault's address"}
		}
		return nil
	})
	for _, c := range []struct {
		at     common.Address
		abi    *abi.ABI
		method string
		want   common.Address
		what   string
	}{
		{m.dep.DealVault, &m.vault, "registry", m.dep.AssetRegistry, "the vault uses another registry"},
		{m.dep.DealVault, &m.vault, "usdg", m.dep.USDG, "the vault uses another dollar token"},
		{m.dep.AssetRegistry, &m.registry, "vault", m.dep.DealVault, "the registry belongs to another vault"},
	} {
		r.call(c.at, c.abi, c.method, func(values []any) error {
			if got := values[0].(common.Address); got != c.want {
				return &errMismatch{c.what}
			}
			return nil
		})
	}
}

// Deal is a deal read from the vault. Amounts are raw units, times Unix seconds.
type Deal struct {
	ID              *big.Int
	Borrower        common.Address
	ListedAt        uint64
	Term            uint32
	Kind            contracts.Kind
	State           contracts.DealState
	Lane            contracts.Lane
	FeeBps          uint16
	Token           common.Address
	ListingExpiry   uint64
	FundedAt        uint64
	AmountOrTokenID *big.Int
	Cap, MinPrice   *big.Int
	Lender          common.Address
	Price, Fee      *big.Int

	Grace     uint64
	TermsHash common.Hash // computed by the vault
}

// graceEnd is the last second in which the borrower may reclaim.
func (d *Deal) graceEnd() uint64 { return d.FundedAt + uint64(d.Term) + d.Grace }

// Bid is a bid read from the vault.
type Bid struct {
	ID, DealID *big.Int
	Lender     common.Address
	Expiry     uint64
	PlacedAt   uint64
	State      contracts.BidState
	Price      *big.Int
	TermsHash  common.Hash
}

// ABI tuples with the ABI's field names.
type dealTuple struct {
	Borrower        common.Address
	ListedAt        *big.Int
	Term            uint32
	Kind            uint8
	State           uint8
	Lane            uint8
	FeeBps          uint16
	Token           common.Address
	ListingExpiry   *big.Int
	FundedAt        *big.Int
	AmountOrTokenId *big.Int //nolint:revive // the ABI's name
	Cap             *big.Int
	MinPrice        *big.Int
	Lender          common.Address
	Price           *big.Int
	Fee             *big.Int
}

type bidTuple struct {
	DealId    *big.Int //nolint:revive // the ABI's name
	Lender    common.Address
	Expiry    *big.Int
	PlacedAt  *big.Int
	State     uint8
	Price     *big.Int
	TermsHash [32]byte
}

// deal reads a deal and its terms; take gets nil if there is none.
func (m *market) deal(r *reads, id *big.Int, take func(*Deal)) {
	d := &Deal{ID: id}
	r.call(m.dep.DealVault, &m.vault, "GRACE", func(v []any) error {
		d.Grace = v[0].(*big.Int).Uint64()
		return nil
	})
	r.probe(m.dep.DealVault, &m.vault, "termsHash", func(v []any) { // it reverts if there is no deal
		if v != nil {
			d.TermsHash = v[0].([32]byte)
		}
	}, id)
	r.call(m.dep.DealVault, &m.vault, "deals", func(v []any) error {
		t := abi.ConvertType(v[0], new(dealTuple)).(*dealTuple)
		if t.Borrower == (common.Address{}) {
			take(nil)
			return nil
		}
		d.Borrower, d.ListedAt, d.Term = t.Borrower, t.ListedAt.Uint64(), t.Term
		d.Kind, d.State, d.Lane = contracts.Kind(t.Kind), contracts.DealState(t.State), contracts.Lane(t.Lane)
		d.FeeBps, d.Token, d.ListingExpiry, d.FundedAt = t.FeeBps, t.Token, t.ListingExpiry.Uint64(), t.FundedAt.Uint64()
		d.AmountOrTokenID, d.Cap, d.MinPrice = t.AmountOrTokenId, t.Cap, t.MinPrice
		d.Lender, d.Price, d.Fee = t.Lender, t.Price, t.Fee
		if int(d.Kind) >= len(contracts.KindNames) || int(d.State) >= len(contracts.DealStateNames) || int(d.Lane) >= len(contracts.LaneNames) || d.TermsHash != m.termsHash(d) {
			return &errMismatch{"the vault's deal has an unknown format or an unexpected terms hash"}
		}
		take(d)
		return nil
	}, id)
}

// bid reads a bid; take gets nil if there is none.
func (m *market) bid(r *reads, id *big.Int, take func(*Bid)) {
	r.call(m.dep.DealVault, &m.vault, "bids", func(v []any) error {
		t := abi.ConvertType(v[0], new(bidTuple)).(*bidTuple)
		switch {
		case t.Lender == (common.Address{}):
			take(nil)
		case int(t.State) >= len(contracts.BidStateNames):
			return &errMismatch{"the vault's bid has an unknown format"}
		default:
			take(&Bid{
				ID: id, DealID: t.DealId, Lender: t.Lender, Expiry: t.Expiry.Uint64(), PlacedAt: t.PlacedAt.Uint64(),
				State: contracts.BidState(t.State), Price: t.Price, TermsHash: t.TermsHash,
			})
		}
		return nil
	}, id)
}

// termsHash computes the hash of a deal's terms, as the vault's termsHash does.
func (m *market) termsHash(d *Deal) common.Hash {
	number := func(n *big.Int) uint256.Int { return *uint256.MustFromBig(n) } // the contract's numbers have at most 256 bits
	terms := contracts.DealTerms{
		DealID: number(d.ID), Borrower: d.Borrower, Kind: d.Kind, Token: d.Token, AmountOrTokenID: number(d.AmountOrTokenID),
		Cap: number(d.Cap), MinPrice: number(d.MinPrice), Term: d.Term, ListingExpiry: d.ListingExpiry, FeeBps: d.FeeBps, Grace: d.Grace,
	}
	return terms.Hash(&m.dep)
}
