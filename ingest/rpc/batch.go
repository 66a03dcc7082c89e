package rpc

import (
	"errors"
	"fmt"
)

// encode writes the request.
func encode(base uint64, calls []call) []byte {
	var b []byte
	for i, c := range calls {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":`, base+uint64(i), c.method)
		b = append(append(b, c.params...), '}')
	}
	if len(calls) > 1 {
		b = append(append([]byte{'['}, b...), ']')
	}
	return b
}

// decode passes each reply to its call. Replies of a batch may come in any order; a batch that is refused as a
// whole gives one error, which some nodes put into an array.
func decode(body []byte, base uint64, calls []call) error {
	s := &scanner{b: body}
	if s.peek() != '[' {
		if len(calls) > 1 {
			_, answer, err := decodeReply(s, (*scanner).skip)
			if answer != nil {
				return answer
			}
			return errors.Join(lied("batch", "single reply to a batch of %d", len(calls)), err)
		}
		id, answer, err := decodeReply(s, calls[0].result)
		switch {
		case err != nil:
			return malformedReply(err)
		case answer != nil:
			return calls[0].fail(answer)
		case id != base:
			return lied("id", "reply to request %d", id)
		}
		return nil
	}
	s.take('[')
	var first error
	seen := make([]bool, len(calls))
	for i := 0; ; i++ {
		more, err := s.more(i == 0, ']')
		if err != nil {
			return malformedReply(err)
		}
		if !more {
			if i < len(calls) {
				return lied("batch", "%d replies to %d requests", i, len(calls))
			}
			return first
		}
		id := idAt(*s)
		if id < base || id-base >= uint64(len(calls)) || seen[id-base] {
			if _, answer, err := decodeReply(s, (*scanner).skip); i == 0 && id == 0 && answer != nil && err == nil {
				return answer
			}
			return lied("batch", "unexpected or second reply to request %d", id)
		}
		seen[id-base] = true
		at := calls[id-base]
		_, answer, err := decodeReply(s, at.result)
		switch {
		case err != nil:
			return malformedReply(err)
		case answer != nil:
			if err := at.fail(answer); err != nil && first == nil {
				first = err
			}
		}
	}
}

// idAt finds the ID of the reply at s. Nodes write it before the result, so little is scanned twice.
func idAt(s scanner) uint64 {
	if !s.take('{') {
		return 0
	}
	for first := true; ; first = false {
		if more, err := s.more(first, '}'); err != nil || !more {
			return 0
		}
		key, err := s.key()
		if err != nil {
			return 0
		}
		v, err := s.raw()
		if err != nil {
			return 0
		}
		if string(key) == "id" {
			return decimal(v)
		}
	}
}

// maxRefusal is in bytes: a longer message refuses nothing.
const maxRefusal = 64 << 10

// refusesAll reports whether a message is an error without an ID: a node refuses a batch as a whole.
func refusesAll(s scanner) bool {
	if len(s.b) > maxRefusal {
		return false
	}
	id, answer, err := decodeReply(&s, (*scanner).skip)
	return id == 0 && answer != nil && err == nil
}

func (c call) fail(answer *Error) error {
	if c.failed != nil && c.failed(answer) {
		return nil
	}
	return fmt.Errorf("%s: %w", c.method, answer)
}

// malformedReply turns a decoding error into a lie, unless it means that a block does not exist or that a response is
// too large.
func malformedReply(err error) error {
	var l *lie
	switch {
	case errors.Is(err, errNoBlock), errors.Is(err, errTooBig), errors.As(err, &l):
		return err
	case errors.Is(err, errRemoved):
		return &lie{kind: "removed", err: err}
	}
	return &lie{kind: "malformed", err: err}
}
