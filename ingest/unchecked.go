package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/topics"
)

// uncheckedHeader is a header of the last barrier of each transaction, in partition 0, with the contracts that are
// unchecked.
const uncheckedHeader = "unchecked"

// unchecked are contracts of the deployment of which it is not known whether they have logs up to a block, which the
// topic would lack: no endpoint answered, or one returned a log that nothing proves. That is no reason to stop, or one
// endpoint could stop everything. The topic and the status say so, and each session searches again, in the background.
type unchecked map[common.Address]uint64

const uncheckedBytes = common.AddressLength + 8

// maxUnchecked bounds the contracts of a header.
const maxUnchecked = 1 << 10

func (u unchecked) encode() (b []byte) {
	for _, contract := range slices.SortedFunc(maps.Keys(u), common.Address.Cmp) {
		b = binary.BigEndian.AppendUint64(append(b, contract[:]...), u[contract])
	}
	return b
}

func decodeUnchecked(b []byte) (unchecked, error) {
	u := unchecked{}
	whole := len(b)%uncheckedBytes == 0 && len(b) <= maxUnchecked*uncheckedBytes
	if !whole || !inOrder(b, uncheckedBytes, func(contract common.Address, b []byte) bool {
		u[contract] = binary.BigEndian.Uint64(b)
		return true
	}) {
		return nil, fmt.Errorf("header %q of %d bytes is no ordered list of contracts and blocks", uncheckedHeader, len(b))
	}
	return u, nil
}

// text is what the status says of them; empty: there are none.
func (u unchecked) text(start uint64) string {
	var added []common.Address
	before := false
	for contract, block := range u {
		if block < start {
			before = true
		} else {
			added = append(added, contract)
		}
	}
	slices.SortFunc(added, common.Address.Cmp)
	var all []string
	if before {
		all = append(all, "nothing shows whether the deployment's contracts have logs before its startBlock: the topic would lack them")
	}
	if len(added) > 0 {
		all = append(all, fmt.Sprintf("nothing shows whether contracts that were added to the deployment have logs from before that, which the topic would lack: %v", added))
	}
	return strings.Join(all, "; ")
}

// leave records the contracts that are unchecked now.
func (in *Ingester) leave(u unchecked) {
	in.unchecked.Store(&u)
	text := u.text(in.cfg.Deployment.StartBlock)
	in.status.update(func(st *Status) { st.Unchecked = text })
}

// left are the contracts that are unchecked.
func (in *Ingester) left() unchecked {
	if u := in.unchecked.Load(); u != nil {
		return *u
	}
	return nil
}

// recheckWait is the time for one search in a session's background.
const recheckWait = 30 * time.Minute

// recheck searches for logs of the unchecked contracts once more. A proved one ends the ingester.
func (in *Ingester) recheck(ctx context.Context) error {
	start := in.cfg.Deployment.StartBlock
	byBlock := map[uint64][]common.Address{}
	for contract, block := range in.left() {
		byBlock[block] = append(byBlock[block], contract)
	}
	for _, block := range slices.Sorted(maps.Keys(byBlock)) {
		contracts := slices.SortedFunc(slices.Values(byBlock[block]), common.Address.Cmp)
		from := start
		if block < start {
			from = searchFrom(start)
		}
		bounded, cancel := context.WithTimeout(ctx, recheckWait)
		logged, open, err := in.client.Logged(bounded, contracts, from, block)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			in.log.Warn("cannot search for logs that the topic would lack", zap.Uint64("from", from), zap.Uint64("to", block), zap.Error(err))
		case logged != nil && block < start:
			return startsTooLate(start, logged)
		case logged != nil:
			return lacksLogs(logged, block)
		case open == nil:
			rest := maps.Clone(in.left())
			maps.DeleteFunc(rest, func(_ common.Address, until uint64) bool { return until == block })
			in.leave(rest)
			in.log.Info("contracts turned out to have no logs that the topic lacks", zap.Stringers("contracts", contracts), zap.Uint64("block", block))
		}
	}
	return nil
}

func startsTooLate(start uint64, l *topics.Log) error {
	return fmt.Errorf("%w: startBlock is %d, and %s has a log in block %d", ErrStartBlock, start, l.Address, l.Block.Number)
}

func lacksLogs(l *topics.Log, block uint64) error {
	return fmt.Errorf("%w: the topic lacks the logs of %s up to block %d: it has one in block %d", ErrOtherFilter, l.Address, block, l.Block.Number)
}
