package devchain

import (
	"bytes"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

// apply takes one event into the model. Events that no actor acts upon change nothing.
func (m *model) apply(event contracts.Event) {
	switch e := event.(type) {
	case *contracts.DealListed, *contracts.DealTermsUpdated, *contracts.DealFunded,
		*contracts.DealReclaimed, *contracts.DealClaimed, *contracts.DealCancelled:
		m.applyDeal(event)
	case *contracts.BidPlaced:
		m.bids = append(m.bids, bid{*e})
	case *contracts.BidWithdrawn:
		m.removeBid(&e.BidID)
	case *contracts.BidAccepted:
		m.removeBid(&e.BidID)
	case *contracts.Credited:
		m.addCredit(e)
	case *contracts.Withdrawn:
		m.removeCredit(e)
	case *contracts.AssetSet:
		m.assets[e.Token] = *e
	case *contracts.PoolSet:
		m.pools[e.PoolID] = *e
	case *contracts.OpenRawChanged:
		m.openRaw[e.Token] = e.OpenRaw
	case *contracts.TokenPaused:
		m.paused[e.Token] = true
	case *contracts.TokenUnpaused:
		delete(m.paused, e.Token)
	case *accountFrozen:
		m.frozen[e.account] = e.frozen
	case *contracts.FeeSet:
		m.fee = e.FeeBps
	case *contracts.VaultPaused:
		m.paused[e.Vault] = true
	case *contracts.VaultUnpaused:
		delete(m.paused, e.Vault)
	case *contracts.EpochOpened, *contracts.EpochRatesSet, *contracts.LiquidityReleased, *contracts.EpochClosed:
		m.applyEpoch(event)
	case *contracts.DripCreated, *contracts.DripCut, *contracts.DripClaimed:
		m.applyDrip(event)
	default:
		m.applyPosition(event)
	}
}

func (m *model) applyDeal(event contracts.Event) {
	switch e := event.(type) {
	case *contracts.DealListed:
		m.deals = append(m.deals, deal{DealListed: *e})
	case *contracts.DealTermsUpdated:
		d := m.deal(&e.DealID)
		d.Cap, d.MinPrice, d.Term, d.ListingExpiry, d.TermsHash = e.Cap, e.MinPrice, e.Term, e.ListingExpiry, e.TermsHash
	case *contracts.DealFunded:
		d := m.deal(&e.DealID)
		d.lender, d.fundedAt, d.graceEnd = e.Lender, e.FundedAt, e.GraceEnd
	case *contracts.DealReclaimed:
		m.removeDeal(&e.DealID)
	case *contracts.DealClaimed:
		m.removeDeal(&e.DealID)
	case *contracts.DealCancelled:
		m.removeDeal(&e.DealID)
	}
}

func (m *model) applyEpoch(event contracts.Event) {
	switch e := event.(type) {
	case *contracts.EpochOpened:
		m.epoch, m.closed, m.ratesSet, m.released = *e, false, false, uint256.Int{}
	case *contracts.EpochRatesSet:
		m.ratesSet = true
	case *contracts.LiquidityReleased:
		m.released = e.ReleasedAfter
	case *contracts.EpochClosed:
		m.closed = true
	}
}

func (m *model) applyDrip(event contracts.Event) {
	switch e := event.(type) {
	case *contracts.DripCreated:
		m.drips = append(m.drips, drip{DripCreated: *e})
	case *contracts.DripCut:
		if d := m.drip(&e.DripID); d != nil {
			d.Total, d.cut = e.TotalAfter, true
		}
		m.dropFinished()
	case *contracts.DripClaimed:
		if d := m.drip(&e.DripID); d != nil {
			d.claimed = e.ClaimedAfter
		}
		m.dropFinished()
	}
}

func (m *model) applyPosition(event contracts.Event) {
	switch e := event.(type) {
	case *contracts.PoolInitialized:
		m.ticks[e.PoolID] = e.Tick
	case *contracts.Swapped:
		m.ticks[e.PoolID] = e.Tick
	case *contracts.PositionTransferred:
		if e.To == (common.Address{}) {
			m.removePosition(&e.TokenID)
			return
		}
		m.position(&e.TokenID).owner = e.To
	case *contracts.LiquidityModified:
		var id uint256.Int
		id.SetBytes32(e.Salt[:])
		i, ok := find(m.positions, &id, func(p *position) *uint256.Int { return &p.tokenID })
		if ok { // when burned, the transfer to nobody came first
			m.positions[i].pool = e.PoolID
			m.positions[i].liquidity.Add(&m.positions[i].liquidity, &e.LiquidityDelta)
		}
	case *contracts.PositionStaked:
		m.position(&e.TokenID).staker = e.Owner
		m.weight = e.TotalWeight
	case *contracts.PositionCheckpointed:
		m.weight = e.TotalWeight
	case *contracts.PositionUnstaked:
		m.position(&e.TokenID).staker = common.Address{}
		m.weight = e.TotalWeight
	}
}

// setOraclePaused is by what the owner pauses the oracle of a stock. Nothing in a block tells but the transaction.
var setOraclePaused = contracts.Selector("setOraclePaused(bool)")

func (m *model) halt(tx *types.Transaction) {
	is, ok := bytes.CutPrefix(tx.Data(), setOraclePaused)
	switch to := tx.To(); {
	case !ok || to == nil || len(is) != 32:
	case is[31] != 0:
		m.halted[*to] = true
	default:
		delete(m.halted, *to)
	}
}
