package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/pause"
)

// ErrForgotten: the command was applied, but its outcome was evicted by later commands of the same wallet.
var ErrForgotten = errors.New("the outcome of the command is no longer known")

// Client writes commands and reads rows, for serving nodes. It is safe for concurrent use.
type Client struct {
	catalogue topics.Catalogue
	producer  *kafka.Producer
	router    *read.Router
}

// NewClient makes a client of a router of Application.
func NewClient(catalogue topics.Catalogue, producer *kafka.Producer, router *read.Router) *Client {
	return &Client{catalogue, producer, router}
}

// Subscribe sends the command and waits until it is applied.
func (c *Client) Subscribe(ctx context.Context, s *Subscribe) (Outcome, error) {
	return c.do(ctx, s.Wallet, s.ID, &Command{Subscribe: s})
}

// Await is Subscribe for an address that must be confirmed before the first alert goes to it.
func (c *Client) Await(ctx context.Context, s *Subscribe) (Outcome, error) {
	return c.do(ctx, s.Wallet, s.ID, &Command{Await: s})
}

// Admit asks whether one more mail may ask for an address to be confirmed. It is not needed for a wallet with an open
// deal, which costs money on the chain: so the limit cannot be used up to keep such wallets out.
func (c *Client) Admit(ctx context.Context, a *Admission) (Outcome, error) {
	rows, err := c.rows(ctx, a.Wallet, a.Wallet, true)
	if err != nil || rows.HoldsDeal {
		return Accepted, err
	}
	return c.doAt(ctx, gate, a.Wallet, a.ID, &Command{Admit: a})
}

// Permitted waits for the outcome of the Permit that an Await has caused. ctx bounds the wait.
func (c *Client) Permitted(ctx context.Context, p *Permit) (Outcome, error) {
	return c.outcome(ctx, p.Place, p.Place, p.ID, 0)
}

// Confirm lets alerts go to an address.
func (c *Client) Confirm(ctx context.Context, of *Confirmation) (Outcome, error) {
	return c.do(ctx, of.Wallet, of.ID, &Command{Confirm: of})
}

// Refuse ends the request to confirm an address.
func (c *Client) Refuse(ctx context.Context, of *Confirmation) (Outcome, error) {
	return c.do(ctx, of.Wallet, of.ID, &Command{Refuse: of})
}

// Unsubscribe sends the command and waits until it is applied.
func (c *Client) Unsubscribe(ctx context.Context, u *Unsubscribe) (Outcome, error) {
	return c.do(ctx, u.Wallet, u.ID, &Command{Unsubscribe: u})
}

// Subscriptions returns a wallet's subscriptions, including ended ones. They include every write that any node has
// acknowledged.
func (c *Client) Subscriptions(ctx context.Context, wallet common.Address) ([]Subscription, error) {
	rows, err := c.rows(ctx, wallet, wallet, true)
	return rows.Subscriptions, err
}

// Health sums up all partitions, each as of its last command.
func (c *Client) Health(ctx context.Context) (sum Health, err error) {
	parts := make([]Health, c.catalogue.Partitions)
	g, ctx := errgroup.WithContext(ctx)
	for p := range c.catalogue.Partitions {
		g.Go(func() error {
			return c.ask(ctx, read.Request{Operation: opHealth, Query: &healthQuery{time.Now().Unix()}, Partitions: []int32{p}}, &parts[p])
		})
	}
	if err := g.Wait(); err != nil {
		return Health{}, err
	}
	for _, h := range parts {
		sum.Pending += h.Pending
		sum.SentLastHour += h.SentLastHour
	}
	return sum, nil
}

// Record is the record of a command to a wallet's partition.
func (c *Command) Record(catalogue topics.Catalogue, wallet common.Address) (*kafka.Record, error) {
	value, err := c.Encode()
	if err != nil {
		return nil, err
	}
	return &kafka.Record{
		Topic: catalogue.Commands(topics.AppNotifier), Partition: topics.Partition(wallet[:], catalogue.Partitions),
		Key: wallet[:], Value: value,
	}, nil
}

// Pauses between reads for the outcome of a command.
const (
	firstLook = time.Millisecond
	lastLook  = 20 * time.Millisecond
)

// do sends a command to the partition of its wallet and waits for its outcome. ctx bounds the wait.
func (c *Client) do(ctx context.Context, wallet common.Address, id ID, cmd *Command) (Outcome, error) {
	return c.doAt(ctx, wallet, wallet, id, cmd)
}

// doAt is do for the partition of another key.
func (c *Client) doAt(ctx context.Context, at, wallet common.Address, id ID, cmd *Command) (Outcome, error) {
	rec, err := cmd.Record(c.catalogue, at)
	if err != nil {
		return Unknown, err
	}
	offset, err := c.producer.Send(ctx, rec)
	if err != nil {
		return Unknown, err
	}
	return c.outcome(ctx, at, wallet, id, uint64(offset)+1)
}

// outcome waits for the outcome of a command. The command is applied in the partition's state of this number; 0: the
// number is unknown, because another partition sends the command.
func (c *Client) outcome(ctx context.Context, where, who common.Address, id ID, number uint64) (Outcome, error) {
	for look := firstLook; ; look = min(2*look, lastLook) {
		rows, err := c.rows(read.WithMinBlock(ctx, number), where, who, false)
		if err != nil && (ctx.Err() != nil || !errors.Is(err, read.ErrUnavailable) && !errors.Is(err, read.ErrStale)) {
			return Unknown, err
		}
		if err == nil {
			if i := slices.IndexFunc(rows.Outcomes, func(o outcome) bool { return o.ID == id }); i >= 0 {
				return rows.Outcomes[i].Outcome, nil
			}
			if number > 0 {
				return Unknown, ErrForgotten
			}
		}
		if err := pause.For(ctx, look); err != nil {
			return Unknown, fmt.Errorf("wait for the outcome of a command: %w", err)
		}
	}
}

// rows reads a wallet's rows at the partition of where; owned: from the owner, because a standby may lack some.
func (c *Client) rows(ctx context.Context, where, wallet common.Address, owned bool) (rows walletRows, err error) {
	of := []int32{topics.Partition(where[:], c.catalogue.Partitions)}
	err = c.ask(ctx, read.Request{Operation: opWallet, Query: &walletQuery{wallet}, Partitions: of, Owned: owned}, &rows)
	return rows, err
}

// ask reads the single row that an operation returns for a partition.
func (c *Client) ask(ctx context.Context, q read.Request, v any) error {
	a, err := c.router.Read(ctx, q)
	if err != nil {
		return err
	}
	if len(a.Items) != 1 {
		return fmt.Errorf("%w: %s: %d rows", read.ErrMalformed, q.Operation.Name(), len(a.Items))
	}
	if err := json.Unmarshal(a.Items[0].Row, v); err != nil {
		return fmt.Errorf("%w: %s: %w", read.ErrMalformed, q.Operation.Name(), err)
	}
	return nil
}
