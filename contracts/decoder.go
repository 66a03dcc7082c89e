package contracts

import (
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
)

// Why a log is Unknown.
const (
	ReasonForeign   = "foreign address"
	ReasonAnonymous = "no topics"
	ReasonSignature = "unknown signature"
	ReasonTopics    = "wrong number of topics"
	ReasonData      = "malformed data"
)

// Decoder turns the logs of one deployment into events. It is safe for concurrent use.
type Decoder struct {
	deployment Deployment

	sources map[common.Address]map[common.Hash]eventSpec
	tokens  map[common.Hash]eventSpec // of any address that is not in sources
	order   []common.Address
	roles   map[common.Address]string // of each in order: its key in the deployment
}

// eventSpec is how to read one event.
type eventSpec struct {
	signature string // hashed, it is the log's first topic
	topics    int    // with the signature
	words     int    // in the head of the data: one for each argument that is not indexed
	strings   bool   // the head is followed by strings
	read      func(*words, common.Address) Event
}

// NewDecoder prepares to decode the logs of a deployment.
func NewDecoder(d Deployment) *Decoder {
	dec := &Decoder{deployment: d, sources: map[common.Address]map[common.Hash]eventSpec{}, roles: map[common.Address]string{}, tokens: byTopic(tokenEvents)}
	for _, c := range append(d.market(), d.tokenLayer()...) {
		if *c.address == (common.Address{}) || c.events == nil {
			continue // the token layer is absent, or its logs are not wanted
		}
		dec.sources[*c.address] = byTopic(c.wanted())
		dec.order = append(dec.order, *c.address)
		dec.roles[*c.address] = c.key
	}
	return dec
}

// Deployment is what the decoder was made for.
func (d *Decoder) Deployment() Deployment { return d.deployment }

// Addresses are the contracts of the deployment whose logs are wanted.
func (d *Decoder) Addresses() []common.Address {
	return append([]common.Address(nil), d.order...)
}

// Role is the key of one of these contracts in a deployment; it says which events it has.
func (d *Decoder) Role(contract common.Address) string { return d.roles[contract] }

// TokenTopics are the first topics of the logs that are wanted of any address: those by which tokens
// announce a split or a pause.
func TokenTopics() []common.Hash {
	topics := make([]common.Hash, len(tokenEvents))
	for i, spec := range tokenEvents {
		topics[i] = spec.topic()
	}
	return topics
}

// Decode says what a log means. It never fails: a log that no event claims, or that claims an event and
// is not one to the last bit, is an *Unknown. The event keeps no reference to topics or data.
func (d *Decoder) Decode(address common.Address, topics []common.Hash, data []byte) Event {
	events, ours := d.sources[address]
	if !ours {
		events = d.tokens
	}
	if len(topics) == 0 {
		return unknown(address, ReasonAnonymous)
	}
	if !ours && topics[0] == transferredHash {
		if e := decode(&transferred, address, topics, data); e != nil {
			return e
		}
		return &TransferMalformed{Token: address}
	}
	spec, ok := events[topics[0]]
	switch {
	case !ok && ours:
		return unknown(address, ReasonSignature)
	case !ok:
		return unknown(address, ReasonForeign)
	case len(topics) != spec.topics:
		return unknown(address, ReasonTopics)
	}
	if e := decode(&spec, address, topics, data); e != nil {
		return e
	}
	return unknown(address, ReasonData)
}

// decode reads an event; nil: the log is not one to the last bit.
func decode(spec *eventSpec, address common.Address, topics []common.Hash, data []byte) Event {
	head := spec.words * wordBytes
	if len(topics) != spec.topics || len(data) != head && (!spec.strings || len(data) < head) {
		return nil
	}
	w := readers.Get().(*words)
	*w = words{topics: topics[1:], data: data, tail: head}
	event := spec.read(w, address)
	ok := !w.spoiled && w.tail == len(data)
	*w = words{}
	readers.Put(w)
	if !ok {
		return nil
	}
	return event
}

// readers are kept, because each log needs one.
var readers = sync.Pool{New: func() any { return new(words) }}

func unknown(address common.Address, reason string) Event {
	return &Unknown{Address: address, Reason: reason}
}

func (s eventSpec) topic() common.Hash { return crypto.Keccak256Hash([]byte(s.signature)) }

func byTopic(specs []eventSpec) map[common.Hash]eventSpec {
	m := make(map[common.Hash]eventSpec, len(specs))
	for _, spec := range specs {
		m[spec.topic()] = spec
	}
	return m
}
