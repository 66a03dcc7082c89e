package deals

import (
	"encoding/binary"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// The IDs of tables and indexes are part of every key on disk: never reuse one.
const (
	tableDeals   byte = 1
	tableBids    byte = 2
	tableRewards byte = 6
	tableBidSums byte = 21

	// IndexListing is the first of four indexes: IndexListing + the Sort. It has deals in LISTED only, whether
	// or not the listing has expired; the value is a ListingFilter.
	IndexListing byte = 0x10
	// IndexWallet: borrower or lender, then Key(deal). The value is a WalletEntry, which begins with the state.
	IndexWallet byte = 0x14
	// IndexState: state, then Key(deal).
	IndexState byte = 0x15
	// 0x16 was the index of OPEN bids.

	// IndexLenderBid: lender, then the bid's ID descending, then Key(deal).
	IndexLenderBid byte = 0x18
	// IndexFundedAsset: token, then fundedAt descending, then Key(deal), of all deals ever funded.
	IndexFundedAsset byte = 0x19
	// IndexOpenPosition: token ID, then Key(deal), of positions that are collateral of deals in LISTED or
	// FUNDED.
	IndexOpenPosition byte = 0x1a
	// IndexFundedAt: fundedAt descending, then Key(deal). The value is price and fee.
	IndexFundedAt byte = 0x1f
	// 0x20 was the index of the numbers in histograms.
)

// Deals has a row, topics.Deal, for each deal under Key(id): ascending keys are descending IDs.
var Deals = &state.Table{
	ID: tableDeals, Name: "deals", Index: indexDeal,
	Entity: &state.EntityTopic{Name: topics.EntityDeal, Key: dealEntityKey, Encode: topics.EncodeDeal},
}

// Bids has a row, topics.Bid, for each bid under BidKey(deal, bid).
var Bids = &state.Table{
	ID: tableBids, Name: "bids", Index: indexBid, Group: idBytes,
	Entity: &state.EntityTopic{Name: topics.EntityBid, Key: bidEntityKey, Encode: topics.EncodeBid},
}

const idBytes = 32

// Key is the key of a deal: the complement of its ID, so that the newest comes first.
func Key(id *uint256.Int) []byte { return appendDescending(make([]byte, 0, idBytes), id) }

// ID decodes a deal's ID from its key, or from the end of a position in a list of deals.
func ID(key []byte) *uint256.Int {
	if len(key) > idBytes {
		key = key[len(key)-idBytes:]
	}
	id := new(uint256.Int).SetBytes(key)
	return id.Not(id)
}

// BidKey is the key of a bid: Key(deal), then the bid's ID, ascending.
func BidKey(deal, bid *uint256.Int) []byte {
	key := appendDescending(make([]byte, 0, 2*idBytes), deal)
	raw := bid.Bytes32()
	return append(key, raw[:]...)
}

// BidID decodes a bid's ID from its key.
func BidID(key []byte) *uint256.Int { return new(uint256.Int).SetBytes(key[len(key)-idBytes:]) }

// WalletPrefix is the prefix of a wallet's deals in IndexWallet.
func WalletPrefix(wallet common.Address) []byte { return wallet.Bytes() }

// LenderPrefix is the prefix of a lender's bids in IndexLenderBid.
func LenderPrefix(lender common.Address) []byte { return lender.Bytes() }

// AssetPrefix is the prefix of a token's deals in IndexFundedAsset.
func AssetPrefix(token common.Address) []byte { return token.Bytes() }

// StatePrefix is the prefix of a state's deals in IndexState.
func StatePrefix(s contracts.DealState) []byte { return []byte{byte(s)} }

func indexDeal(key, row []byte, to *state.IndexEntries) {
	var d topics.Deal
	if err := d.UnmarshalBinary(row); err != nil {
		panic("deals: cannot decode a stored row: " + err.Error())
	}
	var buf [2 * idBytes]byte // for parts of an entry, which are copied
	to.Put(IndexState, nil, StatePrefix(d.State), key)
	w := WalletEntry{State: d.State, Borrower: true, Cap: d.Cap}
	if f := d.Funding; f != nil {
		w.Price, w.Fee, w.Lender = f.Price, f.Fee, f.Lender == d.Borrower
		if !w.Lender {
			lender := w
			lender.Borrower, lender.Lender = false, true
			to.Put(IndexWallet, lender.append(buf[:0]), WalletPrefix(f.Lender), key)
		}
		indexFunded(key, &d, to)
	}
	to.Put(IndexWallet, w.append(buf[:0]), WalletPrefix(d.Borrower), key)
	if d.Kind == contracts.KindPosition && (d.State == contracts.DealListedState || d.State == contracts.DealFundedState) {
		id := d.AmountOrTokenID.Bytes32()
		to.Put(IndexOpenPosition, nil, id[:], key)
	}
	if d.State != contracts.DealListedState {
		return
	}
	var filter [filterBytes]byte
	ListingFilter{Lane: d.Lane, Term: d.Term, Asset: d.Token, Expiry: d.ListingExpiry}.append(filter[:0])
	for sort := range Sorts {
		to.Put(IndexListing+byte(sort), filter[:], appendListingKey(buf[:0], sort, &d))
	}
}

func indexBid(key, row []byte, to *state.IndexEntries) {
	var b topics.Bid
	if err := b.UnmarshalBinary(row); err != nil {
		panic("deals: cannot decode a stored row: " + err.Error())
	}
	var buf [idBytes]byte
	to.Put(IndexLenderBid, nil, LenderPrefix(b.Lender), appendDescending(buf[:0], &b.ID), key[:idBytes])
}

func dealEntityKey(b, key []byte) []byte { return contracts.AppendNumber(b, ID(key)) }

func bidEntityKey(b, key []byte) []byte { return contracts.AppendNumber(b, BidID(key)) }

// appendDescending appends a number so that greater ones sort first.
func appendDescending(b []byte, n *uint256.Int) []byte {
	raw := new(uint256.Int).Not(n).Bytes32()
	return append(b, raw[:]...)
}

func appendUint64(b []byte, n uint64) []byte { return binary.BigEndian.AppendUint64(b, n) }
