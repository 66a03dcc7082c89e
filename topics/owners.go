package topics

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// HolderRole is a node's role for a partition.
type HolderRole string

// The roles.
const (
	RoleOwner   HolderRole = "owner"   // applies the partition and serves it
	RoleStandby HolderRole = "standby" // follows the changelog and serves reads as of where it is
)

// States of a task, as announced in ctl.owners.
const (
	StateRestoring = "restoring" // serves nothing yet
	StateRunning   = "running"
	StateStopped   = "stopped" // by a fault that needs a person
)

// OwnerAlive is how long a node counts as alive after an announcement, which it makes every second.
const OwnerAlive = 5 * time.Second

// Owner is a record of ctl.owners: what a node holds of a partition. A tombstone withdraws it.
type Owner struct {
	Application string     `json:"application,omitempty"` // whose partition it is; empty: AppMarket
	Partition   int32      `json:"partition"`
	Instance    string     `json:"instance"`
	Addr        string     `json:"addr"` // host:port of the node's read API
	Role        HolderRole `json:"role"`
	Incarnation int64      `json:"incarnation"`
	At          BlockRef   `json:"at"`
	Latest      uint64     `json:"latest"`
	ObservedAt  time.Time  `json:"observedAt"`
	Reverts     uint64     `json:"reverts"`
	State       string     `json:"state"`
	Fault       string     `json:"fault,omitempty"`  // what stopped it, for people
	Silent      string     `json:"silent,omitempty"` // the brokers that do not answer the node
}

// maxOwnerBytes bounds a record of ctl.owners, which comes from the network.
const maxOwnerBytes = 4 << 10

// Key is the record's key: "support/3/node-0". For the market the name is omitted, as in its oldest records:
// "3/node-0".
func (o Owner) Key() []byte {
	if o.Application == "" || o.Application == AppMarket {
		return fmt.Appendf(nil, "%d/%s", o.Partition, o.Instance)
	}
	return fmt.Appendf(nil, "%s/%d/%s", o.Application, o.Partition, o.Instance)
}

// decodeOwnerKey decodes a key. The name of an application begins with a letter, a partition with a digit.
func decodeOwnerKey(key []byte) (o Owner, ok bool) {
	o.Application = AppMarket
	if len(key) > 0 && (key[0] < '0' || key[0] > '9') {
		app, rest, found := bytes.Cut(key, []byte{'/'})
		if !found || len(app) == 0 || app[0] == '-' {
			return Owner{}, false
		}
		o.Application, key = string(app), rest
	}
	number, instance, found := bytes.Cut(key, []byte{'/'})
	partition, err := strconv.ParseInt(string(number), 10, 32)
	if !found || err != nil || partition < 0 || len(instance) == 0 {
		return Owner{}, false
	}
	o.Partition, o.Instance = int32(partition), string(instance)
	return o, true
}

// Encode is the record's value.
func (o Owner) Encode() ([]byte, error) { return json.Marshal(o) }

// DecodeOwner decodes a record. For a tombstone (gone) only the fields of the key are set.
func DecodeOwner(key, value []byte) (o Owner, gone bool, err error) {
	named, ok := decodeOwnerKey(key)
	switch {
	case !ok:
		return Owner{}, false, fmt.Errorf("owner key %q", key)
	case len(value) > maxOwnerBytes:
		return Owner{}, false, fmt.Errorf("owner record of %d bytes", len(value))
	case value == nil:
		return named, true, nil
	}
	if err := json.Unmarshal(value, &o); err != nil {
		return Owner{}, false, fmt.Errorf("decode owner: %w", err)
	}
	if o.Application == "" {
		o.Application = AppMarket
	}
	if o.Application != named.Application || o.Partition != named.Partition || o.Instance != named.Instance {
		return Owner{}, false, errors.New("owner record does not match its key")
	}
	return o, false, nil
}
