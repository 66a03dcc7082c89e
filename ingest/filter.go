package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// checkFilter compares the deployment with the topic's filter, and returns the tokens that are followed as of the last
// barrier. Added contracts are allowed if they have no history to miss: they did not exist at the last block, or have
// no log. Only what is proved is a reason to refuse them: others are unchecked.
func (in *Ingester) checkFilter(ctx context.Context, end *published) (map[common.Address]joined, error) {
	followed, last, was := map[common.Address]joined{}, end.last.Block, end.mark
	if last.Hash == (common.Hash{}) {
		return followed, in.checkStart(ctx) // the topic is empty
	}
	in.leave(end.unchecked)
	if !end.marked {
		in.log.Warn("the topic has no filter header, assuming this deployment's filter", zap.String("topic", in.topic))
		return followed, nil
	}
	is := markBy(in.cfg.Deployment, was.format)
	switch {
	case was.start != is.start:
		return nil, fmt.Errorf("%w: the topic starts at block %d, the deployment at %d", ErrOtherFilter, was.start, is.start)
	case !slices.Equal(was.topics, is.topics):
		return nil, fmt.Errorf("%w: the topic was filtered by other token events", ErrOtherFilter)
	}
	if was.followed == nil {
		in.log.Warn("the topic was begun by a build that did not follow meme tokens: holders of tokens registered so far stay unknown, unless the chain is ingested into a new topic",
			zap.String("topic", in.topic), zap.Uint64("block", last.Number))
	}
	for token, since := range was.followed {
		if since.originBlock > last.Number { // the header may belong to a reverted barrier
			since.originBlock = 0
		}
		if since.block <= last.Number {
			followed[token] = since
		}
	}
	return followed, in.checkAdded(ctx, was, last)
}

// readMark reads the filter of the topic's last transaction, with the followed tokens of the last transaction that
// names them, and the other headers of the last one.
func (in *Ingester) readMark(ctx context.Context, history *kafka.History, end *published) error {
	var bad error
	listed := false
	err := history.ReadBack(ctx, in.topic, 0, 0, func(r *kafka.Record) bool {
		at := headerAt(r, markHeader)
		if at < 0 {
			raw, err := topics.DecodeRaw(r.Value)
			_, barrier := raw.(*topics.BlockEnd)
			return end.marked || err != nil || !barrier
		}
		var one mark
		if one, bad = decodeMark(r.Headers[at].Value); bad != nil {
			return false
		}
		if !end.marked {
			end.mark, end.marked, end.headers = one, true, slices.Clone(r.Headers)
			if at := headerAt(r, uncheckedHeader); at >= 0 {
				if end.unchecked, bad = decodeUnchecked(r.Headers[at].Value); bad != nil {
					return false
				}
			}
		}
		if listed = !one.short; listed {
			end.mark.followed = one.followed
		}
		return !listed
	})
	if err = cmp.Or(err, bad); err == nil && end.marked && !listed {
		err = fmt.Errorf("%w: no transaction names the tokens that are followed", ErrTorn)
	}
	return err
}

func headerAt(r *kafka.Record, key string) int {
	return slices.IndexFunc(r.Headers, func(h kafka.Header) bool { return h.Key == key })
}

// added returns the deployment's contracts that the filter lacks, and how many others it has. A contract with another
// role is one of each.
func (m mark) added(d *contracts.Decoder) (added []common.Address, others int) {
	others = len(m.addresses)
	for _, a := range d.Addresses() {
		if _, found := slices.BinarySearchFunc(m.addresses, m.filtered(d.Role(a), a[:]), compareFiltered); found {
			others--
		} else {
			added = append(added, a)
		}
	}
	return added, others
}

// vague reports whether the filter does not tell all of its addresses apart.
func (m mark) vague() bool {
	return len(slices.Compact(slices.Clone(m.addresses))) < len(m.addresses)
}

func (in *Ingester) checkAdded(ctx context.Context, was mark, last topics.BlockRef) error {
	if was.vague() || markBy(in.cfg.Deployment, was.format).vague() {
		return fmt.Errorf("%w: an earlier build recorded the first four bytes of its contracts, and some are equal", ErrOtherFilter)
	}
	added, others := was.added(in.decoder)
	if others > 0 {
		return fmt.Errorf("%w: the topic has logs of %d contracts that are not in the deployment, or have another role there", ErrOtherFilter, others)
	}
	if len(added) == 0 {
		return nil
	}
	existed, claimed, err := in.client.Existed(ctx, last.Hash, added)
	if errors.Is(err, rpc.ErrNoState) || errors.Is(err, rpc.ErrGone) { // nodes prune the state after a while
		claimed, err = added, nil
	}
	var logged, open *topics.Log
	if err == nil && len(existed) == 0 && len(claimed) > 0 {
		logged, open, err = in.client.Logged(ctx, claimed, in.cfg.Deployment.StartBlock, last.Number)
	}
	switch {
	case err != nil:
		return fmt.Errorf("check whether added contracts have a history: %w", err)
	case len(existed) > 0:
		return fmt.Errorf("%w: the topic lacks the logs of %v up to block %d", ErrOtherFilter, existed, last.Number)
	case logged != nil:
		return lacksLogs(logged, last.Number)
	case open != nil:
		u := maps.Clone(in.left())
		if u == nil {
			u = unchecked{}
		}
		for _, contract := range claimed {
			u[contract] = last.Number
		}
		in.leave(u)
		in.log.Warn("an endpoint returns logs of added contracts that nothing proves: the topic may lack them", zap.Stringers("contracts", claimed), zap.Uint64("block", last.Number))
		return nil
	}
	in.log.Info("new contracts in the deployment, none with a history", zap.Stringers("contracts", added), zap.Uint64("block", last.Number))
	return nil
}
