package rpc

import (
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics"
)

// slabBytes is the largest size that the runtime caches per thread.
const slabBytes = 32 << 10

// logDecoder decodes the result of eth_getLogs. Logs, topics and data are allocated in slabs. The zero value is
// ready for use.
type logDecoder struct {
	logs   []topics.Log
	topics []common.Hash
	data   []byte
}

var (
	errRemoved = errors.New("log is marked as removed")
	errMissing = errors.New("field is missing")
)

// Bits of the fields that a log must have.
const (
	hasAddress = 1 << iota
	hasTopics
	hasData
	hasNumber
	hasTxHash
	hasTxIndex
	hasBlockHash
	hasLogIndex

	hasLog = 1<<iota - 1
)

// reset empties it for other logs, which overwrite the former ones.
func (d *logDecoder) reset() {
	clear(d.logs) // they may hold slabs that are full
	d.logs, d.topics, d.data = d.logs[:0], d.topics[:0], d.data[:0]
}

// decode appends the array at s to d.logs.
func (d *logDecoder) decode(s *scanner) error {
	if !s.take('[') {
		return fmt.Errorf("logs: %w", errJSON)
	}
	if d.logs == nil && s.peek() != ']' {
		d.logs = make([]topics.Log, 0, (len(s.b)-s.i)/600+1) // a log takes 600 to 1000 bytes
	}
	for first := true; ; first = false {
		more, err := s.more(first, ']')
		if err != nil {
			return fmt.Errorf("logs: %w", err)
		}
		if !more {
			return nil
		}
		d.logs = append(d.logs, topics.Log{})
		if err := d.log(s, &d.logs[len(d.logs)-1]); err != nil {
			return fmt.Errorf("log %d: %w", len(d.logs)-1, err)
		}
	}
}

func (d *logDecoder) log(s *scanner, l *topics.Log) error {
	if !s.take('{') {
		return errJSON
	}
	has := 0
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return err
		}
		if !more {
			break
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		var n uint64
		switch string(key) {
		case "address":
			has |= hasAddress
			err = s.fixed(l.Address[:])
		case "topics":
			has |= hasTopics
			err = d.topicsOf(s, l)
		case "data":
			has |= hasData
			err = d.dataOf(s, l)
		case "blockNumber":
			has |= hasNumber
			l.Block.Number, err = s.quantity(64)
		case "transactionHash":
			has |= hasTxHash
			err = s.fixed(l.TxHash[:])
		case "transactionIndex":
			has |= hasTxIndex
			n, err = s.quantity(32)
			l.TxIndex = uint32(n)
		case "blockHash":
			has |= hasBlockHash
			err = s.fixed(l.Block.Hash[:])
		case "logIndex":
			has |= hasLogIndex
			n, err = s.quantity(32)
			l.LogIndex = uint32(n)
		case "removed":
			var v []byte
			if v, err = s.raw(); err == nil && string(v) != "false" {
				err = errRemoved
			}
		default:
			err = s.skip()
		}
		if err != nil {
			return fmt.Errorf("%.32q: %w", key, err)
		}
	}
	if has != hasLog {
		return errMissing
	}
	return nil
}

func (d *logDecoder) topicsOf(s *scanner, l *topics.Log) error {
	if !s.take('[') {
		return errJSON
	}
	const most = 4
	if cap(d.topics)-len(d.topics) < most {
		d.topics = make([]common.Hash, 0, max(most, min(most*cap(d.logs), slabBytes/common.HashLength)))
	}
	from := len(d.topics)
	for first := true; ; first = false {
		more, err := s.more(first, ']')
		if err != nil {
			return err
		}
		if !more {
			l.Topics = d.topics[from:len(d.topics):len(d.topics)]
			return nil
		}
		if len(d.topics)-from == most {
			return errors.New("more than four topics")
		}
		d.topics = d.topics[:len(d.topics)+1]
		if err := s.fixed(d.topics[len(d.topics)-1][:]); err != nil {
			return err
		}
	}
}

func (d *logDecoder) dataOf(s *scanner, l *topics.Log) error {
	v, err := s.digits()
	if err != nil {
		return err
	}
	n := len(v) / 2
	if cap(d.data)-len(d.data) < n {
		d.data = make([]byte, 0, max(n, min(256*cap(d.logs), slabBytes)))
	}
	from := len(d.data)
	d.data = d.data[:from+n]
	l.Data = d.data[from : from+n : from+n]
	return unhex(l.Data, v)
}

// decodeReply decodes a JSON-RPC reply; result is called with the scanner at the result. The ID may come after
// the result, and so may an error, beside which some nodes have a result that is null.
func decodeReply(s *scanner, result func(*scanner) error) (id uint64, answer *Error, err error) {
	if !s.take('{') {
		return 0, nil, fmt.Errorf("reply: %w", errJSON)
	}
	done := false
	var null *scanner
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil {
			return 0, nil, fmt.Errorf("reply: %w", err)
		}
		if !more {
			break
		}
		key, err := s.key()
		if err != nil {
			return 0, nil, fmt.Errorf("reply: %w", err)
		}
		switch string(key) {
		case "id":
			var v []byte
			if v, err = s.raw(); err == nil {
				id = decimal(v)
			}
		case "error":
			if s.null() {
				continue
			}
			var v []byte
			if v, err = s.raw(); err == nil {
				answer = parseError(v)
			}
		case "result":
			done, null = true, nil
			if at := *s; s.null() {
				null = &at
			} else {
				err = result(s)
			}
		default:
			err = s.skip()
		}
		if err != nil {
			return 0, nil, err
		}
	}
	if null != nil && answer == nil {
		if err := result(null); err != nil {
			return 0, nil, err
		}
	}
	if !done && answer == nil {
		return 0, nil, fmt.Errorf("reply has neither result nor error: %w", errMissing)
	}
	return id, answer, nil
}

// decimal reads an ID; null and other IDs are 0, which is never used.
func decimal(v []byte) (n uint64) {
	for _, c := range v {
		if c < '0' || c > '9' || n > 1<<56 {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
