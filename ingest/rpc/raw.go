package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/ingest/follow"
)

// rawState is what is known of how an endpoint returns transactions in signed form.
type rawState struct {
	method int       // index in rawMethods of the last one that worked
	none   time.Time // until then it counts as having none of them
	nulls  int       // how often in a row it had a method but not the transaction
	null   time.Time // until then it is asked only if endpoints name different transactions
	saved  int       // unused calls of history
}

// In history a block costs at most 10 calls, whatever a node returns: each block may use rawCalls of them for
// transactions in signed form, and blocks that need none leave theirs to others, up to a bound. At the tip only
// --rpc-raw bounds them.
const (
	rawCalls = 6
	rawSaved = 256
)

// creditCalls adds the calls of blocks of history that an endpoint was asked for.
func (e *endpoint) creditCalls(headers []follow.Header) {
	settled := e.client.settled.Load()
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range headers {
		if headers[i].Number <= settled {
			e.raw.saved = min(e.raw.saved+rawCalls, rawSaved)
		}
	}
}

// most is the maximum number of calls for single transactions that a block may cost.
func (e *endpoint) most(h *follow.Header) int {
	if h.Number > e.client.settled.Load() {
		return e.client.cfg.MaxRaw
	}
	return min(e.client.cfg.MaxRaw, rawCalls)
}

// mayFetch reports why transactions of a block are not fetched in signed form; nil: they are. disputed: endpoints name
// different ones; then the cost does not count, or a liar would win although another endpoint could prove the truth.
func (e *endpoint) mayFetch(h *follow.Header, n int, disputed bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case n > e.client.cfg.MaxRaw:
		return fmt.Errorf("%w: %d would be fetched one by one", errUnsigned, n)
	case disputed:
	case time.Now().Before(e.raw.null):
		return fmt.Errorf("%w: it returned none when last asked", errSpared)
	case h.Number > e.client.settled.Load():
	case n > e.raw.saved:
		return fmt.Errorf("%w: %d would be fetched one by one, more calls than a block of history may cost", errSpared, n)
	default:
		e.raw.saved -= n
	}
	return nil
}

// lacksTransaction records that the endpoint has the methods but not the transaction: it may lack them for long.
func (e *endpoint) lacksTransaction() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.raw.null = time.Now().Add(min(time.Second<<min(e.raw.nulls, 16), rawAgain))
	e.raw.nulls++
}

// rawMethod returns a transaction in signed form.
type rawMethod struct {
	name   string
	byHash bool // or by its block and index
}

// rawMethods: nodes have some of these. The second needs no index of transactions, which some keep for the newest
// blocks only.
var rawMethods = [...]rawMethod{
	{"eth_getRawTransactionByHash", true},
	{"eth_getRawTransactionByBlockHashAndIndex", false},
	{"debug_getRawTransaction", true},
}

// rawAgain is after how long a node without any of them is asked again.
const rawAgain = 10 * time.Minute

// asSigned fetches the transactions of a block with these indices in signed form.
func (e *endpoint) asSigned(ctx context.Context, h *follow.Header, d *described, indices []int) error {
	e.mu.Lock()
	first, never := e.raw.method, time.Now().Before(e.raw.none)
	e.mu.Unlock()
	if never {
		return errUnsigned
	}
	named := !slices.ContainsFunc(indices, func(i int) bool { return d.hashes[i] == (common.Hash{}) })
	last, unknown := errUnsigned, 0
	for k := range rawMethods {
		at := (first + k) % len(rawMethods)
		m := &rawMethods[at]
		if m.byHash && !named {
			continue
		}
		err := e.signedBy(ctx, m, h, d, indices[:1]) // the others once the first has come
		if err == nil {
			e.mu.Lock()
			e.raw.method, e.raw.nulls, e.raw.null = at, 0, time.Time{}
			e.mu.Unlock()
			if len(indices) > 1 {
				err = e.signedBy(ctx, m, h, d, indices[1:])
			}
			if err != nil && lacksRaw(err) {
				e.mu.Lock()
				e.raw.none = time.Now().Add(time.Duration(len(indices)) * time.Second / eachRate)
				e.mu.Unlock()
				return fmt.Errorf("%w: %w", errUnsigned, err)
			}
			return err
		}
		switch {
		case !lacksRaw(err):
			return err
		case classify(err) == classMethod:
			unknown++
		}
		last = fmt.Errorf("%w: %w", errUnsigned, err)
	}
	if unknown == len(rawMethods) {
		e.mu.Lock()
		e.raw.none = time.Now().Add(rawAgain)
		e.mu.Unlock()
	} else {
		e.lacksTransaction()
	}
	return last
}

// lacksRaw reports whether an error means that the endpoint lacks the data, for whatever reason, or that its response
// is unusable.
func lacksRaw(err error) bool {
	if l, ok := errors.AsType[*lie](err); ok {
		return l.kind == "malformed" || l.kind == "batch" || l.kind == "id"
	}
	switch classify(err) {
	case classGone, classRange, classMethod, classState, classTag:
		return true
	case classOther:
		_, answered := errors.AsType[*Error](err)
		status, refused := errors.AsType[*statusError](err)
		return answered || refused && status.status >= 400 && status.status < 500
	default:
		return false
	}
}

// signedBy fetches transactions with one method.
func (e *endpoint) signedBy(ctx context.Context, m *rawMethod, h *follow.Header, d *described, indices []int) error {
	calls, size := make([]call, len(indices)), 0
	for k, i := range indices {
		var params []byte
		if m.byHash {
			params = appendHex([]byte{'['}, d.hashes[i][:])
		} else {
			params = appendQuantity(append(appendHex([]byte{'['}, h.Hash[:]), ','), uint64(i))
		}
		calls[k] = call{
			method: m.name, params: append(params, ']'),
			result: func(s *scanner) error {
				if s.null() {
					return errNoBlock
				}
				v, err := s.digits()
				if err != nil {
					return err
				}
				if len(v) == 0 {
					return errNoBlock
				}
				if len(v)%2 > 0 {
					return errJSON
				}
				if size += len(v)/2 - len(d.raw[i]); size > e.client.cfg.MaxBody {
					return fmt.Errorf("transaction %d of block %d: %w", i, h.Number, errTooBig)
				}
				d.raw[i] = make([]byte, len(v)/2)
				return unhex(d.raw[i], v)
			},
		}
	}
	return e.do(ctx, calls)
}

// hasRaw checks whether an endpoint returns transactions in signed form. It asks for one that does not exist, which
// must be null.
func (e *endpoint) hasRaw(ctx context.Context) error {
	e.mu.Lock()
	e.raw.none = time.Time{}
	e.mu.Unlock()
	var h follow.Header
	h.Hash = common.Hash{1}
	d := &described{make(rawTransactions, 1), []common.Hash{h.Hash}}
	err := e.asSigned(ctx, &h, d, []int{0})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.raw.nulls, e.raw.null = 0, time.Time{}
	if err != nil && e.raw.none.IsZero() && errors.Is(err, errUnsigned) {
		return nil
	}
	return err
}
