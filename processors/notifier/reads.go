package notifier

import (
	"context"
	"encoding/json"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/topics"
)

// Application is the notifier's read API.
func Application() read.Application {
	return read.Application{Name: topics.AppNotifier, Operations: []*read.Operation{opWallet, opHealth}}
}

var (
	opWallet = read.NewOperation("wallet", readWallet)
	opHealth = read.NewOperation("health", readHealth)
)

// walletQuery asks for a wallet's rows, which are in one partition.
type walletQuery struct{ Wallet common.Address }

// Code implements wire.Value.
func (q *walletQuery) Code(c *wire.Coder) { c.Fixed(q.Wallet[:]) }

// Validate implements read.Query.
func (*walletQuery) Validate() error { return nil }

// walletRows is the answer: a wallet's subscriptions, including ended ones, and the outcomes of its last
// commands. Older builds do not report whether it has an open deal.
type walletRows struct {
	Subscriptions []Subscription `json:"subscriptions"`
	Outcomes      []outcome      `json:"outcomes"`
	HoldsDeal     bool           `json:"holdsDeal"`
}

func readWallet(_ context.Context, v *read.Views, q *walletQuery) ([]read.Item, error) {
	var rows walletRows
	for _, channel := range Channels {
		s, err := getSubscription(v.Of[0], q.Wallet, channel)
		if err != nil {
			return nil, err
		}
		if s.Unix != 0 {
			rows.Subscriptions = append(rows.Subscriptions, s)
		}
	}
	if err := getRow(v.Of[0], outcomes, q.Wallet[:], &rows.Outcomes); err != nil {
		return nil, err
	}
	var err error
	if rows.HoldsDeal, err = holdsDeal(v.Of[0], q.Wallet); err != nil {
		return nil, err
	}
	return item(&rows)
}

// Health is a partition's number of pending and sent alerts.
type Health struct {
	Pending      int `json:"pending"`
	SentLastHour int `json:"sentLastHour"`
}

// healthQuery asks for the health of a partition.
type healthQuery struct{ Now int64 } // unix seconds

// Code implements wire.Value.
func (q *healthQuery) Code(c *wire.Coder) { c.Int64(&q.Now) }

// Validate implements read.Query.
func (*healthQuery) Validate() error { return nil }

func readHealth(_ context.Context, v *read.Views, q *healthQuery) ([]read.Item, error) {
	t, err := getTally(v.Of[0])
	if err != nil {
		return nil, err
	}
	h := Health{Pending: t.Pending}
	for minute, n := range t.Sent {
		if minute > q.Now/60-60 {
			h.SentLastHour += n
		}
	}
	return item(&h)
}

func item(v any) ([]read.Item, error) {
	row, err := json.Marshal(v)
	return []read.Item{{Row: row}}, err
}
