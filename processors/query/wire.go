package query

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/deals"
	"github.com/lienstream/lienstream/topics"
)

// The bounds of what nodes tell each other.
const (
	maxRequestBytes = 64<<10 + maxKeys*(common.HashLength+2+5)
	maxHeadBytes    = 256 << 10
	maxItemsBytes   = 64 << 20
	maxPartitions   = 4096
	maxAfterBytes   = 256
	maxKeys         = 64 << 10
	maxBuckets      = 64
	maxWatch        = 10 * time.Second

	// MaxLimit bounds a page.
	MaxLimit = 1000
)

type op uint8

const (
	opWatermarks op = iota
	opDeal
	opListings
	opDeals
	opAssets
	opBalances
	opChanges
	opRewardedDeal
	opAssetDeals
	opPortfolio
	opOverview
	opEpochs
	opStakes
	opPositions
	opStats
	opObservations

	ops // how many there are
)

func (o op) String() string {
	return [...]string{
		"watermarks", "deal", "listings", "deals", "assets", "balances", "changes",
		"rewarded deal", "asset deals", "portfolio", "overview", "epochs", "stakes", "positions", "stats", "observations",
	}[min(o, ops-1)]
}

// request asks a node for what its partitions hold. It has no pointers: gob cannot tell a pointer to zero
// from none, and zero is a lane, a state and a block.
type request struct {
	Op         op
	Partitions []int32
	Pinned     bool            // answer as of the block At, else as of the latest
	At         topics.BlockRef // number and hash

	Deal    common.Hash
	Account common.Address

	Sort      Sort
	HasLane   bool
	Lane      contracts.Lane
	HasTerm   bool
	Term      uint32
	HasAsset  bool
	Asset     common.Address
	HasWallet bool
	Wallet    common.Address
	HasState  bool
	State     contracts.DealState
	HasSince  bool
	Since     Moment
	Seen      uint64        // digest of the watermarks that the caller has: while they are these,
	Wait      time.Duration // the answer may take so long
	Market    market        // what of the deployment an answer needs
	Keys      []common.Hash // token IDs of positions
	Places    []int32       // of each of them: the partition of its pool, where it is known
	Page      int           // the limit of one section
	Buckets   []bucket      // of histograms
	From, To  uint64        // times
	Hourly    bool
	After     []byte
	Limit     int // one more than the page: what is there beyond it says that it goes on
}

var errBadRequest = errors.New("bad request")

func (r *request) validate() error {
	switch {
	case r.Op >= ops:
		return fmt.Errorf("%w: operation %d", errBadRequest, r.Op)
	case len(r.Partitions) > maxPartitions, r.Op != opWatermarks && len(r.Partitions) == 0:
		return fmt.Errorf("%w: %d partitions", errBadRequest, len(r.Partitions))
	case r.Wait < 0 || r.Wait > maxWatch:
		return fmt.Errorf("%w: wait of %s", errBadRequest, r.Wait)
	case r.Page < 0 || r.Page > MaxLimit+1:
		return fmt.Errorf("%w: page of %d", errBadRequest, r.Page)
	case len(r.Keys) > maxKeys, len(r.Places) > maxKeys, len(r.Buckets) > maxBuckets:
		return fmt.Errorf("%w: %d keys and %d buckets", errBadRequest, len(r.Keys), len(r.Buckets))
	case r.paged() && (r.Limit < 2 || r.Limit > r.maxLimit()):
		return fmt.Errorf("%w: limit %d", errBadRequest, r.Limit-1)
	case len(r.After) > maxAfterBytes:
		return fmt.Errorf("%w: position of %d bytes", errBadRequest, len(r.After))
	case r.Sort >= deals.Sorts:
		return fmt.Errorf("%w: sort %d", errBadRequest, r.Sort)
	}
	return nil
}

func (r *request) maxLimit() int {
	if r.Op == opAssetDeals {
		return MaxLimit + 2
	}
	return MaxLimit + 1
}

func (r *request) paged() bool {
	switch r.Op {
	case opListings, opDeals, opAssets, opEpochs, opStakes, opAssetDeals, opObservations:
		return true
	default:
		return false
	}
}

// answer is what the partitions asked for hold, as of one block.
type answer struct {
	At         topics.BlockRef
	Watermarks []Watermark // of these partitions, from before they were read: the answer is no older
	Items      []item
}

// head is the part of an answer that is gob. The items follow it in a frame of their own: gob would take
// them apart by reflection, and a few bytes of it may ask for much memory.
type head struct {
	At         topics.BlockRef
	Watermarks []Watermark
}

func encodeRequest(r *request) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(r)
	return b.Bytes(), err
}

func decodeRequest(body io.Reader) (*request, error) {
	var r request
	if err := gob.NewDecoder(body).Decode(&r); err != nil {
		return nil, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	return &r, r.validate()
}

// encodeAnswer: the head's length (4 bytes), the head, the items.
func encodeAnswer(a *answer) ([]byte, error) {
	b := bytes.NewBuffer(make([]byte, 4, 4<<10))
	if err := gob.NewEncoder(b).Encode(head{a.At, a.Watermarks}); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	size := b.Len() - 4
	body := appendItems(b.Bytes(), a.Items)
	if size > maxHeadBytes || len(body)-size > maxItemsBytes {
		return nil, fmt.Errorf("answer of %d bytes is too large", len(body))
	}
	binary.BigEndian.PutUint32(body, uint32(size))
	return body, nil
}

func decodeAnswer(body io.Reader) (*answer, error) {
	raw, err := io.ReadAll(io.LimitReader(body, 4+maxHeadBytes+maxItemsBytes))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if len(raw) < 4 {
		return nil, errMalformed
	}
	size := binary.BigEndian.Uint32(raw)
	if raw = raw[4:]; size > maxHeadBytes || int(size) > len(raw) {
		return nil, errMalformed
	}
	var h head
	if err := gob.NewDecoder(bytes.NewReader(raw[:size])).Decode(&h); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	items, err := parseItems(raw[size:])
	if err != nil {
		return nil, err
	}
	return &answer{At: h.At, Watermarks: h.Watermarks, Items: items}, nil
}
