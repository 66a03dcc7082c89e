package topics

import (
	"encoding/binary"
	"fmt"

	"github.com/ethereum/go-ethereum/common"
)

// maxTopics is how many topics a log can have.
const maxTopics = 4

// AppendRaw appends the value of a record of the raw topic: Avro in the Confluent wire format. The schema ID
// tells the type of the record.
func AppendRaw(b []byte, r Raw) []byte {
	switch r := r.(type) {
	case *Log:
		b = appendRef(AppendHeader(b, SchemaLog), &r.Block)
		b = append(b, r.TxHash[:]...)
		b = appendUint(b, uint64(r.TxIndex))
		b = appendUint(b, uint64(r.LogIndex))
		b = append(b, r.Address[:]...)
		if len(r.Topics) > 0 {
			b = appendLong(b, int64(len(r.Topics)))
			for i := range r.Topics {
				b = append(b, r.Topics[i][:]...)
			}
		}
		b = append(b, 0) // ends the array
		return appendBytes(b, r.Data)
	case *Probe:
		b = appendRef(AppendHeader(b, SchemaProbe), &r.Block)
		b = appendUint(b, uint64(r.LogIndex))
		b = append(b, r.Token[:]...)
		b = appendOptDecimal(b, r.UIMultiplier)
		b = appendOptDecimal(b, r.NewUIMultiplier)
		b = appendOptUint(b, r.EffectiveAt)
		return appendOptBool(b, r.Paused)
	case *Ledger:
		return appendLedger(b, r)
	case *BlockEnd:
		schema := SchemaBlockEnd
		switch {
		case r.Linked && r.Safe > 0:
			schema = SchemaSafeEnd
		case r.Linked:
			schema = SchemaLinkedEnd
		}
		b = appendRef(AppendHeader(b, schema), &r.Block)
		b = append(b, r.Parent[:]...)
		b = appendUint(b, uint64(r.Records))
		b = appendUint(b, r.Finalized)
		b = appendUint(b, r.Head)
		b = appendBool(b, r.Commit)
		if r.Linked {
			b = appendRef(b, &r.Previous)
		}
		if schema == SchemaSafeEnd {
			b = appendUint(b, r.Safe)
		}
		return b
	case *BlockRevert:
		b = appendRef(AppendHeader(b, SchemaBlockRevert), &r.Block)
		return appendRef(b, &r.Head)
	}
	panic(fmt.Sprintf("topics: cannot encode a %T", r)) // Raw is sealed
}

// DecodeRaw reads a value of the raw topic. Slices of the result alias value.
func DecodeRaw(value []byte) (Raw, error) { return new(RawDecoder).Decode(value) }

// RawDecoder decodes successive values of the raw topic. Frequent types are decoded into reused memory. The
// zero value is ready for use.
type RawDecoder struct {
	log    Log
	topics [maxTopics]common.Hash
	end    BlockEnd
}

// Decode is DecodeRaw; its result is valid until the next one.
func (d *RawDecoder) Decode(value []byte) (Raw, error) {
	if len(value) < WireHeaderBytes || value[0] != 0 {
		return nil, fmt.Errorf("raw record: %w: not in the Confluent wire format", ErrMalformed)
	}
	var (
		in  = input{b: value[WireHeaderBytes:]}
		raw Raw
	)
	switch id := binary.BigEndian.Uint32(value[1:]); id {
	case SchemaLog.ID:
		raw = d.readLog(&in)
	case SchemaProbe.ID:
		raw = &Probe{
			Block: in.ref(), LogIndex: in.uint32(), Token: in.address(),
			UIMultiplier: in.optDecimal(), NewUIMultiplier: in.optDecimal(), EffectiveAt: in.optUint(), Paused: in.optBool(),
		}
	case SchemaLedger.ID:
		raw = in.ledger()
	case SchemaLedgerSince.ID:
		l := in.ledger()
		if l.Since = in.uint(); l.Since == 0 {
			in.bad = true // it must be written without
		}
		raw = l
	case SchemaBlockEnd.ID, SchemaLinkedEnd.ID, SchemaSafeEnd.ID:
		d.end = BlockEnd{
			Block: in.ref(), Parent: in.hash(), Records: in.uint32(),
			Finalized: in.uint(), Head: in.uint(), Commit: in.bool(),
		}
		if d.end.Linked = id != SchemaBlockEnd.ID; d.end.Linked {
			d.end.Previous = in.ref()
		}
		if id == SchemaSafeEnd.ID {
			if d.end.Safe = in.uint(); d.end.Safe == 0 {
				in.bad = true // it must be written as a linked one
			}
		}
		raw = &d.end
	case SchemaBlockRevert.ID:
		raw = &BlockRevert{Block: in.ref(), Head: in.ref()}
	default:
		if id < ownSchemaIDs {
			return nil, fmt.Errorf("raw record: %w: %w: ID %d", ErrUnknownSchema, ErrLaterSchema, id)
		}
		return nil, fmt.Errorf("raw record: %w: ID %d", ErrUnknownSchema, id)
	}
	if err := in.end(); err != nil {
		return nil, fmt.Errorf("raw record %T: %w", raw, err)
	}
	return raw, nil
}

func (d *RawDecoder) readLog(in *input) *Log {
	d.log = Log{Block: in.ref(), TxHash: in.hash(), TxIndex: in.uint32(), LogIndex: in.uint32(), Address: in.address()}
	if n := in.long(); n != 0 {
		if n < 0 || n > maxTopics {
			in.bad = true
			return &d.log
		}
		for i := range n {
			d.topics[i] = in.hash()
		}
		d.log.Topics = d.topics[:n:n]
		if in.long() != 0 {
			in.bad = true // an assignment of both would forget what it found
		}
	}
	d.log.Data = in.bytes()
	return &d.log
}

func appendLedger(b []byte, l *Ledger) []byte {
	schema := SchemaLedger
	if l.Since > 0 {
		schema = SchemaLedgerSince
	}
	b = appendRef(AppendHeader(b, schema), &l.Block)
	b = append(b, l.Token[:]...)
	b = appendUint(appendUint(b, uint64(l.Part)), uint64(l.Parts))
	b = appendString(appendOptHash(b, l.First), l.Fault)
	if len(l.Shares) > 0 {
		b = appendLong(b, int64(len(l.Shares)))
		for i := range l.Shares {
			b = append(b, l.Shares[i].Account[:]...)
			b = appendDecimal(b, &l.Shares[i].Amount)
		}
	}
	b = append(b, 0) // ends the array
	if l.Since > 0 {
		b = appendUint(b, l.Since)
	}
	return b
}

func (in *input) ledger() *Ledger {
	l := &Ledger{Block: in.ref(), Token: in.address(), Part: in.uint32(), Parts: in.uint32()}
	if in.some() {
		l.First = in.hash()
	}
	l.Fault = string(in.bytes())
	n := in.long()
	if n == 0 {
		return l
	}
	if n < 0 || n > MaxShares {
		in.bad = true
		return l
	}
	l.Shares = make([]Share, n)
	for i := range l.Shares {
		l.Shares[i] = Share{Account: in.address(), Amount: *in.decimal()}
	}
	if in.long() != 0 {
		in.bad = true // an assignment of both would forget what it found
	}
	return l
}
