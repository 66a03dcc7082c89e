package contracts

import (
	"bytes"
	"fmt"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

func TestListUpdateCancel(t *testing.T) {
	m := newMarket(t)
	events := m.must(t, alice, m.DealVault, "list", KindERC20, m.stock, 100, 1100, 1000, term7, m.now+day, feeBps)
	emitted(t, events,
		&OpenRawChanged{Token: m.stock, OpenRaw: u256(100)},
		&DealListed{
			DealID: u256(1), Borrower: alice, Token: m.stock, Kind: KindERC20, Lane: LaneStock, AmountOrTokenID: u256(100),
			Cap: u256(1100), MinPrice: u256(1000), Term: term7, ListingExpiry: m.now + day, ListedAt: m.now, FeeBps: feeBps,
			TermsHash: m.terms(t, 1),
		})
	if held := m.number(t, m.stock, "balanceOf", m.DealVault).Uint64(); held != 100 {
		t.Errorf("the vault holds %d", held)
	}

	before := m.terms(t, 1)
	events = m.must(t, alice, m.DealVault, "updateTerms", 1, 2000, 1500, term21, 0)
	after := m.terms(t, 1)
	emitted(t, events, &DealTermsUpdated{DealID: u256(1), Cap: u256(2000), MinPrice: u256(1500), Term: term21, TermsHash: after})
	if before == after {
		t.Error("new terms, the same hash")
	}
	if d := m.deal(t, 1); d.Cap.Uint64() != 2000 || d.MinPrice.Uint64() != 1500 || d.Term != term21 || d.ListingExpiry.Sign() != 0 {
		t.Errorf("deal %+v", d)
	}

	events = m.must(t, alice, m.DealVault, "cancel", 1, m.terms(t, 1))
	emitted(t, events,
		&DealCancelled{DealID: u256(1), Borrower: alice, At: m.now},
		&Credited{Account: alice, Asset: m.stock, DealID: u256(1), Kind: BalanceERC20, AmountOrTokenID: u256(100), Reason: CreditCollateralReturn},
		&OpenRawChanged{Token: m.stock})
	events = m.must(t, alice, m.DealVault, "withdraw", m.stock, bob, 30)
	emitted(t, events, &Withdrawn{Account: alice, Asset: m.stock, To: bob, Kind: BalanceERC20, AmountOrTokenID: u256(30)})
	m.refused(t, "NothingToWithdraw()", alice, m.DealVault, "withdraw", m.stock, bob, 71)
	events = m.must(t, alice, m.DealVault, "withdraw", m.stock, bob, 70)
	emitted(t, events, &Withdrawn{Account: alice, Asset: m.stock, To: bob, Kind: BalanceERC20, AmountOrTokenID: u256(70)})
	if held := m.number(t, m.stock, "balanceOf", m.DealVault).Uint64(); held != 0 {
		t.Errorf("the vault still holds %d", held)
	}
}

func TestFundReclaim(t *testing.T) {
	m := newMarket(t)
	id := m.list(t)
	hash := m.terms(t, id)
	events := m.must(t, bob, m.DealVault, "fund", id, hash)
	emitted(t, events,
		&DealFunded{
			DealID: u256(1), Lender: bob, Price: u256(1000), Fee: u256(5), Proceeds: u256(995), FundedAt: m.now,
			Expiry: m.now + term7, GraceEnd: m.now + term7 + grace, TermsHash: hash,
		},
		&Credited{Account: alice, Asset: m.USDG, DealID: u256(1), AmountOrTokenID: u256(995), Reason: CreditProceeds},
		&Credited{Account: fees, Asset: m.USDG, DealID: u256(1), AmountOrTokenID: u256(5), Reason: CreditFee})

	m.now += term7 + grace // the last second
	events = m.must(t, alice, m.DealVault, "reclaim", id, m.terms(t, id))
	emitted(t, events,
		&DealReclaimed{DealID: u256(1), Borrower: alice, Lender: bob, Repaid: u256(1100), At: m.now},
		&Credited{Account: bob, Asset: m.USDG, DealID: u256(1), AmountOrTokenID: u256(1100), Reason: CreditRepayment},
		&Credited{Account: alice, Asset: m.stock, DealID: u256(1), Kind: BalanceERC20, AmountOrTokenID: u256(100), Reason: CreditCollateralReturn},
		&OpenRawChanged{Token: m.stock})
	emitted(t, m.must(t, bob, m.DealVault, "withdraw", m.USDG, bob, 1100),
		&Withdrawn{Account: bob, Asset: m.USDG, To: bob, AmountOrTokenID: u256(1100)})
}

func TestClaim(t *testing.T) {
	m := newMarket(t)
	id := m.list(t)
	m.fund(t, id)
	end := m.now + term7 + grace
	m.now = end
	m.refused(t, fmt.Sprintf("GraceNotOver(%d)", end), bob, m.DealVault, "claim", id, m.terms(t, id))
	m.now++
	m.refused(t, fmt.Sprintf("GraceOver(%d)", end), alice, m.DealVault, "reclaim", id, m.terms(t, id))
	emitted(t, m.must(t, bob, m.DealVault, "claim", id, m.terms(t, id)),
		&DealClaimed{DealID: u256(1), Lender: bob, Borrower: alice, At: m.now},
		&Credited{Account: bob, Asset: m.stock, DealID: u256(1), Kind: BalanceERC20, AmountOrTokenID: u256(100), Reason: CreditCollateralClaim},
		&OpenRawChanged{Token: m.stock})
}

func TestBids(t *testing.T) {
	m := newMarket(t)
	id := m.list(t)
	hash := m.terms(t, id)
	emitted(t, m.must(t, carol, m.DealVault, "bid", id, 1050, m.now+day, hash),
		&BidPlaced{DealID: u256(1), BidID: u256(1), Lender: carol, Price: u256(1050), Expiry: m.now + day, PlacedAt: m.now, TermsHash: hash})
	emitted(t, m.must(t, bob, m.DealVault, "bid", id, 1100, m.now+1, hash), // the cap itself
		&BidPlaced{DealID: u256(1), BidID: u256(2), Lender: bob, Price: u256(1100), Expiry: m.now + 1, PlacedAt: m.now, TermsHash: hash})
	emitted(t, m.must(t, bob, m.DealVault, "withdrawBid", m.bidding(t, 2)...),
		&BidWithdrawn{DealID: u256(1), BidID: u256(2), Lender: bob, Price: u256(1100), At: m.now},
		&Credited{Account: bob, Asset: m.USDG, DealID: u256(1), AmountOrTokenID: u256(1100), Reason: CreditBidRefund})
	emitted(t, m.must(t, alice, m.DealVault, "acceptBid", m.bidding(t, 1)...),
		&BidAccepted{DealID: u256(1), BidID: u256(1), Lender: carol, Price: u256(1050), At: m.now},
		&DealFunded{
			DealID: u256(1), Lender: carol, BidID: u256(1), Price: u256(1050), Fee: u256(5), Proceeds: u256(1045), FundedAt: m.now,
			Expiry: m.now + term7, GraceEnd: m.now + term7 + grace, TermsHash: hash,
		},
		&Credited{Account: alice, Asset: m.USDG, DealID: u256(1), AmountOrTokenID: u256(1045), Reason: CreditProceeds},
		&Credited{Account: fees, Asset: m.USDG, DealID: u256(1), AmountOrTokenID: u256(5), Reason: CreditFee})
	if b := viewInto[bidTuple](t, m.evm, m.DealVault, "bids", 1); b.State != uint8(BidAcceptedState) || b.Lender != carol || b.DealId.Uint64() != 1 {
		t.Errorf("bid %+v", b)
	}
}

// TestVaultRefusals: every function, every way in which it must not go through.
func TestVaultRefusals(t *testing.T) {
	m := newMarket(t)
	v := m.DealVault
	m.list(t)    // deal 1: listed, with bid 1
	m.bid(t, 1)  //
	m.list(t)    // deal 2: funded
	m.fund(t, 2) //
	m.list(t)    // deal 3: cancelled, with bid 2 still open
	m.bid(t, 3)  //
	m.must(t, alice, v, "cancel", 3, m.terms(t, 3))
	m.must(t, alice, v, "list", KindERC20, m.stock, 10, 1100, 1000, term7, m.now+10, feeBps) // deal 4: soon expired, with bid 3
	m.bid(t, 4)
	m.list(t) // deal 5: its terms are edited after bid 4
	m.bid(t, 5)
	old := m.terms(t, 5)
	m.must(t, alice, v, "updateTerms", 5, 1101, 1000, term7, 0)
	hash := m.terms(t, 1)

	list := func(change func([]any)) []any {
		args := []any{KindERC20, m.stock, 100, 1100, 1000, term7, 0, feeBps}
		change(args)
		return args
	}
	for _, test := range []struct {
		name   string
		later  uint64 // seconds
		from   common.Address
		method string
		args   []any
		want   string
	}{
		{"term", 0, alice, "list", list(func(a []any) { a[5] = term7 + 1 }), "UnsupportedTerm(604801)"},
		{"no price", 0, alice, "list", list(func(a []any) { a[4] = 0 }), "AmountOutOfRange()"},
		{"cap below the price", 0, alice, "list", list(func(a []any) { a[3] = 999 }), "AmountOutOfRange()"},
		{"already expired", 0, alice, "list", list(func(a []any) { a[6] = m.now }), "ListingExpired(6)"},
		{"another fee", 0, alice, "list", list(func(a []any) { a[7] = feeBps - 1 }), fmt.Sprintf("FeeChanged(%d, %d)", feeBps-1, feeBps)},
		{"unknown asset", 0, alice, "list", list(func(a []any) { a[1] = m.TKN }), "AssetNotAllowed(" + m.TKN.Hex() + ")"},
		{"cash as collateral", 0, alice, "list", list(func(a []any) { a[1] = m.USDG }), "AssetNotAllowed(" + m.USDG.Hex() + ")"},
		{"a token as a position", 0, alice, "list", list(func(a []any) { a[0] = KindPosition }), "AssetNotAllowed(" + m.stock.Hex() + ")"},
		{"too little", 0, alice, "list", list(func(a []any) { a[2] = 9 }), "AmountOutOfRange()"},
		{"too much", 0, alice, "list", list(func(a []any) { a[2] = 1001 }), "AmountOutOfRange()"},
		{"nothing of it", 0, fees, "list", list(func([]any) {}), "ERC20InsufficientAllowance"},

		{"no such deal", 0, alice, "updateTerms", []any{9, 1100, 1000, term7, 0}, "DealNotFound(9)"},
		{"deal 0", 0, alice, "updateTerms", []any{0, 1100, 1000, term7, 0}, "DealNotFound(0)"},
		{"another's", 0, bob, "updateTerms", []any{1, 1100, 1000, term7, 0}, "NotBorrower()"},
		{"funded", 0, alice, "updateTerms", []any{2, 1100, 1000, term7, 0}, "NotFundable(2, 1)"},
		{"term", 0, alice, "updateTerms", []any{1, 1100, 1000, 1, 0}, "UnsupportedTerm(1)"},
		{"no price", 0, alice, "updateTerms", []any{1, 1100, 0, term7, 0}, "AmountOutOfRange()"},
		{"cap below the price", 0, alice, "updateTerms", []any{1, 1, 2, term7, 0}, "AmountOutOfRange()"},
		{"past expiry", 0, alice, "updateTerms", []any{1, 1100, 1000, term7, m.now}, "ListingExpired(1)"},

		{"no such deal", 0, alice, "cancel", []any{9, hash}, "DealNotFound(9)"},
		{"another's", 0, bob, "cancel", []any{1, m.terms(t, 1)}, "NotBorrower()"},
		{"funded", 0, alice, "cancel", []any{2, m.terms(t, 2)}, "NotFundable(2, 1)"},
		{"twice", 0, alice, "cancel", []any{3, m.terms(t, 3)}, "NotFundable(3, 4)"},

		{"other terms", 0, alice, "cancel", []any{1, old}, "TermsChanged("},

		{"no such deal", 0, bob, "fund", []any{9, hash}, "DealNotFound(9)"},
		{"other terms", 0, bob, "fund", []any{5, old}, fmt.Sprintf("TermsChanged(%s, %s)", old, m.terms(t, 5))},
		{"funded", 0, carol, "fund", []any{2, m.terms(t, 2)}, "NotFundable(2, 1)"},
		{"cancelled", 0, carol, "fund", []any{3, m.terms(t, 3)}, "NotFundable(3, 4)"},
		{"expired", 11, bob, "fund", []any{4, m.terms(t, 4)}, "ListingExpired(4)"},
		{"own deal", 0, alice, "fund", []any{1, hash}, "NotLender()"},
		{"no money", 0, fees, "fund", []any{1, hash}, "ERC20InsufficientAllowance"},

		{"no such deal", 0, bob, "bid", []any{9, 1000, m.now + day, hash}, "DealNotFound(9)"},
		{"other terms", 0, bob, "bid", []any{5, 1000, m.now + day, old}, "TermsChanged("},
		{"funded", 0, bob, "bid", []any{2, 1000, m.now + day, m.terms(t, 2)}, "NotFundable(2, 1)"},
		{"expired", 11, bob, "bid", []any{4, 1000, m.now + day, m.terms(t, 4)}, "ListingExpired(4)"},
		{"own deal", 0, alice, "bid", []any{1, 1000, m.now + day, hash}, "NotLender()"},
		{"of nothing", 0, bob, "bid", []any{1, 0, m.now + day, hash}, "AmountOutOfRange()"},
		{"above the cap", 0, bob, "bid", []any{1, 1101, m.now + day, hash}, "AmountOutOfRange()"},
		{"expires now", 0, bob, "bid", []any{1, 1000, m.now, hash}, "BidExpired(5)"},
		{"no money", 0, fees, "bid", []any{1, 1000, m.now + day, hash}, "ERC20InsufficientAllowance"},

		{"bid 0", 0, carol, "withdrawBid", []any{0, hash, 1050}, "BidNotOpen(0)"},
		{"no such bid", 0, carol, "withdrawBid", []any{9, hash, 1050}, "BidNotOpen(9)"},
		{"other terms", 0, carol, "withdrawBid", []any{1, old, 1050}, "TermsChanged("},
		{"another price", 0, carol, "withdrawBid", []any{1, hash, 1051}, "PriceChanged(1051, 1050)"},
		{"another's", 0, bob, "withdrawBid", m.bidding(t, 1), "NotLender()"},

		{"bid 0", 0, alice, "acceptBid", []any{0, hash, 1050}, "BidNotOpen(0)"},
		{"other terms", 0, alice, "acceptBid", []any{1, old, 1050}, "TermsChanged("},
		{"another price", 0, alice, "acceptBid", []any{1, hash, 1051}, "PriceChanged(1051, 1050)"},
		{"another's deal", 0, bob, "acceptBid", m.bidding(t, 1), "NotBorrower()"},
		{"expired", day, alice, "acceptBid", m.bidding(t, 1), "BidExpired(1)"},
		{"of a cancelled deal", 0, alice, "acceptBid", m.bidding(t, 2), "NotFundable(3, 4)"},
		{"of an expired listing", 11, alice, "acceptBid", m.bidding(t, 3), "ListingExpired(4)"},
		{"on former terms", 0, alice, "acceptBid", m.bidding(t, 4), "TermsChanged("},

		{"no such deal", 0, alice, "reclaim", []any{9, hash}, "DealNotFound(9)"},
		{"other terms", 0, alice, "reclaim", []any{2, old}, "TermsChanged("},
		{"not funded", 0, alice, "reclaim", []any{1, m.terms(t, 1)}, "NotFundable(1, 0)"},

		{"no such deal", 0, bob, "claim", []any{9, hash}, "DealNotFound(9)"},
		{"other terms", term7 + grace + 1, bob, "claim", []any{2, old}, "TermsChanged("},
		{"another's", term7 + grace + 1, carol, "claim", []any{2, m.terms(t, 2)}, "NotLender()"},
		{"not funded", 0, bob, "claim", []any{1, m.terms(t, 1)}, "NotFundable(1, 0)"},
		{"too early", term7, bob, "claim", []any{2, m.terms(t, 2)}, "GraceNotOver("},

		{"nothing", 0, carol, "withdraw", []any{m.USDG, carol, 1}, "NothingToWithdraw()"},
		{"of nothing", 0, alice, "withdraw", []any{m.USDG, alice, 0}, "NothingToWithdraw()"},
		{"to nobody", 0, alice, "withdraw", []any{m.USDG, common.Address{}, 1}, "InvalidRecipient("},
		{"to the vault", 0, alice, "withdraw", []any{m.USDG, v, 1}, "InvalidRecipient("},
		{"nothing", 0, alice, "withdrawNFT", []any{m.PositionManager, 1, alice}, "NothingToWithdraw()"},

		{"not the owner", 0, alice, "pause", nil, "OwnableUnauthorizedAccount("},
		{"not the owner", 0, alice, "unpause", nil, "OwnableUnauthorizedAccount("},
		{"not the owner", 0, alice, "setFee", []any{0, alice}, "OwnableUnauthorizedAccount("},
		{"too high", 0, owner, "setFee", []any{1001, fees}, "AmountOutOfRange()"},
		{"to nobody", 0, owner, "setFee", []any{10, common.Address{}}, "InvalidRecipient("},
		{"not the owner", 0, alice, "setRewards", []any{m.EpochController}, "OwnableUnauthorizedAccount("},
		{"no contract", 0, owner, "setRewards", []any{alice}, "InvalidRecipient("},
	} {
		t.Run(test.method+" "+test.name, func(t *testing.T) {
			fork := m.fork()
			fork.now += test.later
			fork.refused(t, test.want, test.from, v, test.method, test.args...)
		})
	}
}

// TestPause: a pause stops what opens a position in the market, and nothing that ends one.
func TestPause(t *testing.T) {
	m := newMarket(t)
	v := m.DealVault
	m.list(t) // 1: to be cancelled
	m.list(t) // 2: to be reclaimed
	m.list(t) // 3: to be claimed
	m.bid(t, 1)
	m.fund(t, 2)
	m.fund(t, 3)
	m.must(t, owner, v, "pause")

	const paused = "EnforcedPause()"
	m.refused(t, paused, alice, v, "list", KindERC20, m.stock, 100, 1100, 1000, term7, 0, feeBps)
	m.refused(t, paused, bob, v, "fund", 1, m.terms(t, 1))
	m.refused(t, paused, bob, v, "bid", 1, 1000, m.now+day, m.terms(t, 1))
	m.refused(t, paused, alice, v, "acceptBid", m.bidding(t, 1)...)

	m.must(t, alice, v, "updateTerms", 1, 1200, 1000, term7, 0)
	m.must(t, carol, v, "withdrawBid", m.bidding(t, 1)...)
	m.must(t, alice, v, "cancel", 1, m.terms(t, 1))
	m.must(t, alice, v, "reclaim", 2, m.terms(t, 2))
	m.now += term7 + grace + 1
	m.must(t, bob, v, "claim", 3, m.terms(t, 3))
	m.must(t, alice, v, "withdraw", m.stock, alice, m.credit(t, alice, m.stock))
	m.must(t, bob, v, "withdraw", m.stock, bob, m.credit(t, bob, m.stock))
	m.must(t, bob, v, "withdraw", m.USDG, bob, m.credit(t, bob, m.USDG))

	m.must(t, owner, v, "unpause")
	m.list(t)
}

func TestSetFee(t *testing.T) {
	m := newMarket(t)
	id := m.list(t) // keeps the fee that it was listed with
	emitted(t, m.must(t, owner, m.DealVault, "setFee", 1000, carol), &FeeSet{Vault: m.DealVault, FeeBps: 1000, FeeRecipient: carol})
	m.fund(t, id)
	if got := m.credit(t, carol, m.USDG); got != 5 {
		t.Errorf("fee %d, want 5", got)
	}
	m.fund(t, m.list(t))
	if got := m.credit(t, carol, m.USDG); got != 105 {
		t.Errorf("fees %d, want 105", got)
	}
}

// TestFrozenCredit: what is owed to a frozen account holds up nobody, and waits for it.
func TestFrozenCredit(t *testing.T) {
	m := newMarket(t)
	id := m.list(t)
	m.fund(t, id)
	m.must(t, owner, m.USDG, "freeze", bob)
	m.must(t, alice, m.DealVault, "reclaim", id, m.terms(t, id))
	m.refused(t, "AddressFrozen("+bob.Hex()+")", bob, m.DealVault, "withdraw", m.USDG, bob, 1100)
	m.must(t, alice, m.DealVault, "withdraw", m.USDG, alice, m.credit(t, alice, m.USDG))
	if got := m.credit(t, bob, m.USDG); got != 1100 {
		t.Errorf("bob is owed %d", got)
	}
	m.must(t, owner, m.USDG, "unfreeze", bob)
	m.must(t, bob, m.DealVault, "withdraw", m.USDG, bob, 1100)
}

// TestFeeOnTransfer: a token that moves less than it says is not collateral. The code answers 1 to everything.
func TestFeeOnTransfer(t *testing.T) {
	m := newMarket(t)
	m.setCode(m.weth, common.FromHex("60015f5260205ff3"))
	m.refused(t, "FeeOnTransfer()", alice, m.DealVault, "list", KindERC20, m.weth, 100, 1100, 1000, term7, 0, feeBps)
}

// TestReentrancy: a token that calls back into the vault while it pays out gets nothing more. The token has a
// credit of its own in WETH, which the call back would withdraw were the vault not locked.
func TestReentrancy(t *testing.T) {
	m := newMarket(t)
	evil := m.deploy(t, owner, mustArtifact(t, "StockToken"), owner, "Evil", "EVIL")
	m.must(t, owner, m.AssetRegistry, "setAsset", evil, limits{true, KindERC20, LaneMeme, big.NewInt(1), big.NewInt(1e6), big.NewInt(1e6)})
	m.must(t, owner, evil, "mint", alice, 100)
	m.must(t, alice, evil, "approve", m.DealVault, 100)
	m.must(t, alice, m.DealVault, "list", KindERC20, evil, 100, 1100, 1000, term7, 0, feeBps)
	m.must(t, alice, m.DealVault, "cancel", 1, m.terms(t, 1))
	m.must(t, alice, m.weth, "transfer", evil, 50)
	m.must(t, evil, m.weth, "approve", m.DealVault, 50)
	m.must(t, evil, m.DealVault, "list", KindERC20, m.weth, 50, 1100, 1000, term7, 0, feeBps)
	m.must(t, evil, m.DealVault, "cancel", 2, m.terms(t, 2))

	payload, err := mustArtifact(t, "DealVault").ABI.Pack("withdraw", m.weth, evil, big.NewInt(50))
	if err != nil {
		t.Fatal(err)
	}
	m.setCode(evil, callAndReturnSuccess(m.DealVault, payload))
	if _, _, err := m.fork().call(t, evil, m.DealVault, "withdraw", m.weth, evil, 50); err != nil {
		t.Fatalf("the call would fail on its own: %v", err)
	}
	m.refused(t, "SafeERC20FailedOperation("+evil.Hex()+")", alice, m.DealVault, "withdraw", evil, alice, 100)
}

// callAndReturnSuccess is code that calls a contract and returns whether that went through.
func callAndReturnSuccess(to common.Address, payload []byte) []byte {
	const codeLen = 47
	size := byte(len(payload))
	code := []byte{
		0x60, size, 0x60, codeLen, 0x5f, 0x39, // CODECOPY(0, codeLen, size)
		0x5f, 0x5f, 0x60, size, 0x5f, 0x5f, 0x73, // CALL(gas, to, 0, 0, size, 0, 0)
	}
	code = append(code, to[:]...)
	code = append(code, 0x5a, 0xf1, 0x5f, 0x52, 0x60, 0x20, 0x5f, 0xf3) // RETURN(success)
	code = append(code, bytes.Repeat([]byte{0}, codeLen-len(code))...)
	return append(code, payload...)
}

func mustArtifact(t testing.TB, name string) Artifact {
	t.Helper()
	artifact, err := artifactOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return artifact
}

// TestTermsHash pins what a lender signs up to: the EIP-712 struct of every term, on this chain and vault.
func TestTermsHash(t *testing.T) {
	m := newMarket(t)
	id := m.list(t)
	terms := DealTerms{
		DealID: u256(1), Borrower: alice, Token: m.stock, AmountOrTokenID: u256(100), Cap: u256(1100), MinPrice: u256(1000), Term: term7,
		FeeBps: feeBps, Grace: grace,
	}
	if want := terms.Hash(&Deployment{ChainID: testChainID, DealVault: m.DealVault, USDG: m.USDG}); m.terms(t, id) != want {
		t.Errorf("terms hash %s, want %s", m.terms(t, id), want)
	}
}

// TestRewardHookGas sweeps the gas of a funding from far too little upwards: it either fails as a whole or the
// token layer heard of it. A caller can never fund and starve the hook.
func TestRewardHookGas(t *testing.T) {
	m := newMarket(t)
	m.openEpoch(t)
	id := m.list(t)
	hash := m.terms(t, id)
	refused, funded := 0, 0
	for gas := uint64(100_000); gas < 1_800_000; gas += 4_000 {
		fork := m.fork()
		fork.gas = gas
		_, logs, err := fork.call(t, bob, m.DealVault, "fund", id, hash)
		if err != nil {
			if err.Error() == "InsufficientGas()" {
				refused++
			}
			continue
		}
		funded++
		heard := false
		for _, event := range m.events(t, logs) {
			_, reserved := event.(*RewardReserved)
			heard = heard || reserved
		}
		if !heard {
			t.Fatalf("funded with %d gas, and no reward was reserved", gas)
		}
	}
	if refused == 0 || funded == 0 {
		t.Errorf("%d refused for lack of gas, %d funded", refused, funded)
	}
}

// TestRewardHookFaults: whatever the hook does, deals are funded and settled.
func TestRewardHookFaults(t *testing.T) {
	for name, code := range map[string]string{
		"reverts":           "5f5ffd",
		"burns all its gas": "5b5f56",
		"return bomb":       "63000fffff5ffd",
		"invalid":           "fe",
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t)
			hook := common.HexToAddress("0xbad")
			m.setCode(hook, common.FromHex(code))
			m.must(t, owner, m.DealVault, "setRewards", hook)
			m.gas = 3_000_000
			m.fund(t, m.list(t))
			m.fund(t, m.list(t))
			m.must(t, alice, m.DealVault, "reclaim", 1, m.terms(t, 1))
			m.now += term7 + grace + 1
			m.must(t, bob, m.DealVault, "claim", 2, m.terms(t, 2))
		})
	}
}
