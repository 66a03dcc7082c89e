package query

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/processors/market/holders"
	"github.com/lienstream/lienstream/topics"
)

// MaxHolders bounds a HoldersQuery.
const MaxHolders = 256

// HoldersQuery asks for the largest holders of a meme token, and for some accounts whatever they hold.
type HoldersQuery struct {
	Token    common.Address
	Largest  int
	Accounts []common.Address
}

// Code implements wire.Value.
func (q *HoldersQuery) Code(c *wire.Coder) {
	c.Fixed(q.Token[:])
	c.Int(&q.Largest)
	wire.Slice(c, &q.Accounts, MaxHolders, common.AddressLength, func(a *common.Address) { c.Fixed(a[:]) })
}

// Validate implements read.Query.
func (q *HoldersQuery) Validate() error {
	if q.Largest < 0 || q.Largest > MaxHolders || len(q.Accounts) > MaxHolders {
		return fmt.Errorf("largest %d plus %d accounts: more than %d", q.Largest, len(q.Accounts), MaxHolders)
	}
	return nil
}

// TokenHolders is the holders of a token.
type TokenHolders struct {
	topics.Holders
	Largest []topics.Holding // descending by amount, then ascending by account
	Of      []topics.Holding // of the accounts asked for, those that hold any
}

// HoldersOf implements ExchangeReader.
func (c *Client) HoldersOf(ctx context.Context, at topics.BlockRef, q HoldersQuery) (Answer[TokenHolders], error) {
	from := c.partitionOf(contracts.TokenEntity(q.Token))
	a, err := c.Read(ctx, read.Request{Operation: opHolders, Query: &q, Partitions: from, At: &at})
	if err != nil {
		return Answer[TokenHolders]{At: at}, err
	}
	answer := Answer[TokenHolders]{At: a.Block, From: from}
	if len(a.Items) == 0 {
		return answer, ErrNotFound
	}
	split, err := inSections(a.Items)
	if err != nil {
		return answer, err
	}
	if len(split[sectionHolders]) != 1 || answer.Value.UnmarshalBinary(split[sectionHolders][0].Row) != nil {
		return answer, read.ErrMalformed
	}
	if answer.Value.Largest, err = decodeAll[topics.Holding](split[sectionLargest]); err != nil {
		return answer, err
	}
	answer.Value.Of, err = decodeAll[topics.Holding](split[sectionHolding])
	return answer, err
}

// readHolders reads no more of the index than is asked for, however many hold the token.
func readHolders(_ context.Context, views *read.Views, q *HoldersQuery) ([]read.Item, error) {
	var c collector
	for _, v := range views.Of {
		row, err := v.Get(holders.Tokens, q.Token[:])
		if err != nil {
			return nil, err
		}
		if row == nil {
			continue
		}
		c.add(sectionHolders, nil, row)
		rank := uint32(0)
		if q.Largest > 0 {
			err = v.ScanIndex(holders.IndexAmount, q.Token[:], nil, func(_, row []byte) bool {
				c.add(sectionLargest, binary.BigEndian.AppendUint32(nil, rank), row)
				rank++
				return int(rank) < q.Largest
			})
			if err != nil {
				return nil, err
			}
		}
		for _, account := range q.Accounts {
			key := holders.HoldingKey(q.Token, account)
			if row, err = v.Get(holders.Holdings, key); err != nil {
				return nil, err
			}
			c.add(sectionHolding, key, row)
		}
	}
	return c.sorted(), nil
}
