package notifier

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
)

// Channel is a way to deliver alerts.
type Channel uint8

// The channels. Their numbers are stored on disk.
const (
	Email Channel = iota + 1
	Telegram
	Push
)

// Channels are all of them.
var Channels = []Channel{Email, Telegram, Push}

var channelNames = map[Channel]string{Email: "email", Telegram: "telegram", Push: "push"}

func (c Channel) String() string { return channelNames[c] }

// ParseChannel parses a channel's name.
func ParseChannel(name string) (Channel, bool) {
	for _, c := range Channels {
		if channelNames[c] == name {
			return c, true
		}
	}
	return 0, false
}

// Kind is the topic of an alert, which is also a preference.
type Kind uint8

// The kinds. Their numbers are bits of Prefs, stored on disk.
const (
	T48 Kind = iota
	T24
	T6
	T1
	Expiry
	Budget
	EpochOpens

	confirming // requests to confirm an address, not a preference
)

// Kinds are all of them, in the order of the user interface.
var Kinds = []Kind{T48, T24, T6, T1, Expiry, Budget, EpochOpens}

var kindNames = [...]string{"t48", "t24", "t6", "t1", "expiry", "budget", "epoch"}

func (k Kind) String() string { return kindNames[k] }

// Prefs is a set of wanted kinds.
type Prefs uint8

// Has reports whether a kind is wanted.
func (p Prefs) Has(k Kind) bool { return p&(1<<k) != 0 }

// With sets a kind.
func (p Prefs) With(k Kind, wanted bool) Prefs {
	if wanted {
		p |= 1 << k
	}
	return p
}

// ID identifies a command and its outcome.
type ID [16]byte

// Subscribe creates a subscription, or replaces the one of the wallet and channel.
type Subscribe struct {
	ID      ID             `json:"id"`
	Wallet  common.Address `json:"wallet"`
	Channel Channel        `json:"channel"`
	Sealed  []byte         `json:"sealed"` // the address, encrypted by Keys.Seal
	Mask    string         `json:"mask"`   // for public display
	Prefs   Prefs          `json:"prefs"`
	Unix    int64          `json:"unix"` // of the signed message

	// Since is when the subscription began that confirmed the address; 0: it need not be confirmed.
	Since int64 `json:"since,omitempty"`

	// Keeps is the Of of the present subscription if it has this address already: then waiting alerts are not tried
	// anew. 0: it has not, or this is unknown.
	Keeps int64 `json:"keeps,omitempty"`

	// Mail is part of Await: the mail that asks for confirmation, which is requested at the address's place in the same
	// transaction, so that no subscription waits without one. Nil: a chat, or an older build, which requests it itself.
	Mail *Permit `json:"mail,omitempty"`
}

// Unsubscribe ends a subscription.
type Unsubscribe struct {
	ID      ID             `json:"id"`
	Wallet  common.Address `json:"wallet"`
	Channel Channel        `json:"channel"`
	Unix    int64          `json:"unix"` // of the signed message; 0: by a link in an alert
	Since   int64          `json:"since,omitempty"`

	// Of is the Unix of the subscription whose address was compared: the wallet may have named another one since. Older
	// builds write none.
	Of int64 `json:"of,omitempty"`
}

// Deal is the state of a deal, for alerts to its parties. Amounts are raw, in decimal.
type Deal struct {
	ID       string         `json:"id"`
	Borrower common.Address `json:"borrower"`
	Lender   common.Address `json:"lender"`
	Token    common.Address `json:"token"`
	Amount   string         `json:"amount"`
	Position bool           `json:"position,omitempty"` // the amount is the ID of a liquidity position
	Cap      string         `json:"cap"`
	Price    string         `json:"price,omitempty"`
	FundedAt uint64         `json:"fundedAt,omitempty"`
	Expiry   uint64         `json:"expiry,omitempty"`
	GraceEnd uint64         `json:"graceEnd,omitempty"`
	Open     bool           `json:"open"` // funded, and neither reclaimed nor claimed
}

// Fact is the new state of a deal, for one of its parties.
type Fact struct {
	Wallet common.Address `json:"wallet"`
	Deal   Deal           `json:"deal"`
	At     uint64         `json:"at"` // block time
}

// News is an event of an epoch, for all subscribers. Amounts are raw, in decimal.
type News struct {
	Stage    Stage  `json:"stage"`
	Epoch    uint32 `json:"epoch"`
	Term     uint32 `json:"term,omitempty"` // of the budget, seconds
	At       uint64 `json:"at"`             // block time of the event
	StartsAt uint64 `json:"startsAt"`
	EndsAt   uint64 `json:"endsAt"`
	Budget7  string `json:"budget7"`
	Budget21 string `json:"budget21"`
	Reserved string `json:"reserved,omitempty"` // of the budget
}

// Asset is the symbol and the decimals of a token that may be collateral.
type Asset struct {
	Token    common.Address `json:"token"`
	Symbol   string         `json:"symbol"`
	Decimals uint8          `json:"decimals"`
}

// Tick is the progress of a partition of the raw topic: all its facts up to that time came before. Times are in unix
// seconds, except for Written. Older builds sent only the first three fields.
type Tick struct {
	From  int32  `json:"from"`
	Block uint64 `json:"block"`
	Time  uint64 `json:"time"`

	Applied uint64 `json:"applied,omitempty"` // time of the newest applied block, which may not be confirmed
	Head    uint64 `json:"head,omitempty"`    // estimated time of the chain's head as the ingester saw it, from confirmed blocks
	Written int64  `json:"written,omitempty"` // when the ingester wrote that: unix milliseconds
}

// Result is the result of an attempt to deliver an alert.
type Result uint8

// The results.
const (
	Sent  Result = iota + 1
	Retry        // try again at Report.Next
	Dead         // give up this alert
	Gone         // give up all alerts to this address
)

// Claim is the right to attempt an alert. Only the process that holds it sends the alert, for as long as an attempt may
// take.
type Claim struct {
	Wallet  common.Address `json:"wallet"`
	Row     []byte         `json:"row"` // of the outbox
	Attempt int            `json:"attempt"`
	FiredAt uint64         `json:"firedAt"`
	By      string         `json:"by"`             // unique
	Lapsed  string         `json:"over,omitempty"` // the claim that it replaces, which has lapsed; empty: none
}

// Delivery is the report of an attempt to deliver an alert.
type Delivery struct {
	Wallet  common.Address `json:"wallet"`
	Row     []byte         `json:"row"` // of the outbox
	Attempt int            `json:"attempt"`
	FiredAt uint64         `json:"firedAt"`        // of the alert: by now another one may be in its row
	By      string         `json:"by,omitempty"`   // the attempt's claim
	Unix    int64          `json:"unix,omitempty"` // Of the subscription that it went to; older builds write none
	To      string         `json:"to,omitempty"`   // Taker of that address, if it was sent; older builds write none
	Result  Result         `json:"result"`
	Next    int64          `json:"next,omitempty"` // unix milliseconds
	Reason  string         `json:"reason,omitempty"`
}

// Command is a value of the command topic. Exactly one field is set.
type Command struct {
	Subscribe   *Subscribe   `json:"subscribe,omitempty"`
	Unsubscribe *Unsubscribe `json:"unsubscribe,omitempty"`
	Fact        *Fact        `json:"fact,omitempty"`
	News        *News        `json:"news,omitempty"`
	Tick        *Tick        `json:"tick,omitempty"`
	Claim       *Claim       `json:"claim,omitempty"`
	Report      *Delivery    `json:"report,omitempty"`

	// Older builds skip these, so they do not send to an unconfirmed address.
	Await   *Subscribe    `json:"await,omitempty"` // as Subscribe, but the address must be confirmed first
	Ask     *Subscribe    `json:"ask,omitempty"`   // from older builds: Await, and a mail is sent
	Admit   *Admission    `json:"admit,omitempty"`
	Permit  *Permit       `json:"permit,omitempty"`
	Confirm *Confirmation `json:"confirm,omitempty"`
	Refuse  *Confirmation `json:"refuse,omitempty"` // the opposite: no alert may go to the address

	Reseal *Reseal `json:"reseal,omitempty"`
	Asset  *Asset  `json:"asset,omitempty"`

	Returned *News `json:"returned,omitempty"` // the opposite of News, for a budget; if a reorg removes it, the news are true again

	Removed bool `json:"-"` // a reorg removed it: encoded as the record's last byte
}

// commandVersion is the first byte of a command.
const commandVersion = 1

// maxCommandBytes bounds a command, which comes from the network.
const maxCommandBytes = 32 << 10

var errCommand = errors.New("not a command of the notifier")

// Encode encodes the value of a command's record.
func (c *Command) Encode() ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	value := append([]byte{commandVersion}, body...)
	if c.Removed {
		return append(value, 1), nil
	}
	return append(value, 0), nil
}

func decodeCommand(value []byte) (c Command, err error) {
	end := len(value) - 1
	if end < 1 || end > maxCommandBytes || value[0] != commandVersion || value[end] > 1 {
		return c, errCommand
	}
	c.Removed = value[end] == 1
	if err := json.Unmarshal(value[1:end], &c); err != nil {
		return c, fmt.Errorf("%w: %w", errCommand, err)
	}
	for _, n := range []*News{c.News, c.Returned} {
		if n != nil && !n.Stage.OfNews() {
			return c, fmt.Errorf("%w: stage %d", errCommand, n.Stage)
		}
	}
	for _, at := range []*Channel{channelOf(c.Subscribe), channelOf(c.Unsubscribe), channelOf(c.Await), channelOf(c.Ask), channelOf(c.Confirm), channelOf(c.Refuse), channelOf(c.Reseal)} {
		if at != nil && channelNames[*at] == "" {
			return c, fmt.Errorf("%w: channel %d", errCommand, *at)
		}
	}
	return c, nil
}

func channelOf(v any) *Channel {
	switch v := v.(type) {
	case *Subscribe:
		if v != nil {
			return &v.Channel
		}
	case *Unsubscribe:
		if v != nil {
			return &v.Channel
		}
	case *Confirmation:
		if v != nil {
			return &v.Channel
		}
	case *Reseal:
		if v != nil {
			return &v.Channel
		}
	}
	return nil
}
