package indexer

import (
	"crypto/hmac"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// The events of /stream. Only the last event of a block has an ID: a client that loses the connection within a
// block gets that block again.

const (
	resetEvent   = "event: reset\ndata: {\"reason\":\"the changes since then are not known: read again\"}\n\n"
	droppedEvent = "event: dropped\ndata: {\"reason\":\"you fell behind: reconnect\"}\n\n"
)

func startEvent(b []byte, name string) []byte {
	return append(append(append(b, "event: "...), name...), "\ndata: "...)
}

func endEvent(b []byte) []byte { return append(b, "\n\n"...) }

// appendDealEvents appends two events for each changed deal: its state, and whether it is listed.
func appendDealEvents(b []byte, c *query.Changes) []byte {
	now := c.At.Block.Timestamp
	for i := range c.Deals {
		d := &c.Deals[i]
		b = httpapi.AppendAmount(append(startEvent(b, "deal"), `{"id":`...), &d.ID)
		b = append(b, `,"deal":`...)
		listed := false
		if d.Deal != nil {
			b = appendDeal(b, d.Deal, now)
			listed = d.Deal.Listed(now)
		} else {
			b = append(b, "null"...)
		}
		b = endEvent(append(b, '}'))
		b = httpapi.AppendAmount(append(startEvent(b, "listing"), `{"id":`...), &d.ID)
		b = endEvent(append(appendBool(b, "listed", listed), '}'))
	}
	return b
}

func appendPoolEvent(b []byte, o *query.PoolOverview) []byte {
	return endEvent(appendPoolOverview(startEvent(b, "pool"), o))
}

func appendEpochEvent(b []byte, o *query.PoolOverview) []byte {
	b = appendNullableEpoch(append(startEvent(b, "epoch"), `{"epoch":`...), o.Epoch)
	return endEvent(append(b, '}'))
}

// appendBlockEvent appends the last event of a block.
func (ids *eventIDs) appendBlockEvent(b []byte, at query.Moment, latest uint64) []byte {
	b = append(b, "id: "...)
	b = append(ids.append(b, at), '\n')
	latest = max(latest, at.Block.Number)
	b = appendInteger(append(startEvent(b, "block"), '{'), "number", at.Block.Number)
	b = httpapi.AppendHash(append(b, `,"hash":`...), &at.Block.Hash)
	b = appendInteger(b, "timestamp", at.Block.Timestamp)
	b = appendInteger(b, "latestBlock", latest)
	b = appendInteger(b, "lagBlocks", latest-at.Block.Number)
	return endEvent(append(b, '}'))
}

// eventIDs encodes moments as event IDs: number, hash, earlier reverts, timestamp, and a tag. The tag prevents
// forged IDs, which would make processors search for blocks that never existed.
type eventIDs struct{ signer *httpapi.Signer }

func (ids *eventIDs) append(b []byte, m query.Moment) []byte {
	start := len(b)
	b = append(strconv.AppendUint(b, m.Block.Number, 10), ":0x"...)
	b = append(hex.AppendEncode(b, m.Block.Hash[:]), ':')
	b = append(strconv.AppendUint(b, m.Reverts, 10), ':')
	b = strconv.AppendUint(b, m.Block.Timestamp, 10)
	return ids.signer.AppendTag(append(b, ':'), b[start:])
}

const maxEventID = 3*20 + 4 + 66 + 22

// parse decodes an ID; false: it is not ours.
func (ids *eventIDs) parse(id string) (m query.Moment, ok bool) {
	parts := strings.Split(id[:min(len(id), maxEventID+1)], ":")
	if len(parts) != 5 || len(parts[1]) != 2+2*len(m.Block.Hash) {
		return m, false
	}
	var errs [4]error
	m.Block.Number, errs[0] = strconv.ParseUint(parts[0], 10, 64)
	_, errs[1] = hex.Decode(m.Block.Hash[:], []byte(parts[1][2:]))
	m.Reverts, errs[2] = strconv.ParseUint(parts[2], 10, 64)
	m.Block.Timestamp, errs[3] = strconv.ParseUint(parts[3], 10, 64)
	return m, errs == [4]error{} && hmac.Equal(ids.append(nil, m), []byte(id))
}
