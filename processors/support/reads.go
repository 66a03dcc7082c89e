package support

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/topics"
)

// The operations of the desk. Each reads one partition: commands have no blocks that partitions share.
var (
	opFind = read.NewOperation("find", serveFind)
	opList = read.NewOperation("list", serveList)
)

// Application is the desk's read API.
func Application() read.Application {
	return read.Application{Name: topics.AppSupport, Operations: []*read.Operation{opFind, opList}}
}

// MaxList bounds a page.
const MaxList = 1000

type findQuery struct {
	Wallet common.Address
	Nonce  common.Hash
}

// Code implements wire.Value.
func (q *findQuery) Code(c *wire.Coder) {
	c.Fixed(q.Wallet[:])
	c.Fixed(q.Nonce[:])
}

// Validate implements read.Query.
func (*findQuery) Validate() error { return nil }

type listQuery struct {
	Undecided bool
	After     []byte
	Limit     int
}

// Code implements wire.Value.
func (q *listQuery) Code(c *wire.Coder) {
	c.Bool(&q.Undecided)
	c.Bytes(&q.After, keyBytes)
	c.Int(&q.Limit)
}

const keyBytes = common.AddressLength + common.HashLength

// BeforeWallet is the key to list a wallet's payments after: right before the first that it can have, whose nonce is
// zero.
func BeforeWallet(wallet common.Address) []byte {
	first := new(big.Int).SetBytes(paymentKey(wallet, common.Hash{}))
	if first.Sign() == 0 {
		return nil
	}
	return first.Sub(first, common.Big1).FillBytes(make([]byte, keyBytes))
}

// Validate implements read.Query.
func (q *listQuery) Validate() error {
	if q.Limit < 1 || q.Limit > MaxList {
		return fmt.Errorf("limit: %d is not in 1-%d", q.Limit, MaxList)
	}
	if len(q.After) != 0 && len(q.After) != keyBytes {
		return fmt.Errorf("after: %d bytes", len(q.After))
	}
	return nil
}

// serveFind returns one item: the desk, then the payment and its report.
func serveFind(_ context.Context, v *read.Views, q *findQuery) ([]read.Item, error) {
	view := v.Of[0]
	row, err := view.Get(desks, q.Wallet[:])
	if err != nil {
		return nil, fmt.Errorf("read desk: %w", err)
	}
	key := paymentKey(q.Wallet, q.Nonce)
	item := read.Item{Key: key, Row: row}
	for _, table := range []*state.Table{payments, reports} {
		part, err := view.Get(table, key)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", table.Name, err)
		}
		item.Parts = append(item.Parts, part)
	}
	return []read.Item{item}, nil
}

func serveList(_ context.Context, v *read.Views, q *listQuery) ([]read.Item, error) {
	view, table := v.Of[0], payments
	if q.Undecided {
		table = open
	}
	var items []read.Item
	err := view.Scan(table, nil, q.After, func(key, row []byte) bool {
		items = append(items, read.Item{Key: append([]byte(nil), key...), Row: append([]byte(nil), row...)})
		return len(items) < q.Limit
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", table.Name, err)
	}
	if q.Undecided {
		for i := range items {
			if items[i].Row, err = view.Get(payments, items[i].Key); err != nil {
				return nil, fmt.Errorf("read payment: %w", err)
			}
		}
	}
	return items, nil
}

// Routed reads the desk from the nodes that hold its partitions.
type Routed struct{ Router *read.Router }

// Find implements Reads.
func (r Routed) Find(ctx context.Context, partition int32, wallet common.Address, nonce common.Hash) (Found, error) {
	answer, err := r.Router.Read(ctx, read.Request{
		Operation: opFind, Query: &findQuery{Wallet: wallet, Nonce: nonce}, Partitions: []int32{partition},
	})
	if err != nil {
		return Found{}, err
	}
	if len(answer.Items) != 1 || len(answer.Items[0].Parts) != 2 {
		return Found{}, read.ErrMalformed
	}
	item := answer.Items[0]
	f := Found{Applied: answer.Block.Number, Desk: &Desk{}}
	if len(item.Row) > 0 {
		if f.Desk, err = DecodeDesk(item.Row); err != nil {
			return Found{}, err
		}
	}
	if len(item.Parts[0]) == 0 {
		return f, nil
	}
	if f.Payment, err = DecodePayment(item.Parts[0]); err != nil {
		return Found{}, err
	}
	f.Report = item.Parts[1]
	return f, nil
}

// List implements Reads.
func (r Routed) List(ctx context.Context, partition int32, undecided bool, after []byte, limit int) (found []*Payment, next []byte, err error) {
	answer, err := r.Router.Read(ctx, read.Request{
		Operation: opList, Query: &listQuery{Undecided: undecided, After: after, Limit: limit}, Partitions: []int32{partition},
	})
	if err != nil {
		return nil, nil, err
	}
	for _, item := range answer.Items {
		p, err := DecodePayment(item.Row)
		if err != nil {
			return nil, nil, errors.Join(read.ErrMalformed, err)
		}
		found = append(found, p)
	}
	if len(answer.Items) == limit {
		next = answer.Items[limit-1].Key
	}
	return found, next, nil
}
