package rpc

import (
	"bytes"
	"errors"
	"fmt"
)

// scanner reads JSON in one pass over a slice, without building values. It checks the syntax of what it walks
// through; of skipped values it only finds the end.
type scanner struct {
	b []byte
	i int
}

var errJSON = errors.New("malformed JSON")

// maxDepth bounds the nesting of skipped values.
const maxDepth = 64

// peek returns the next byte that is not white space, or 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// take consumes c, or reports that it is not next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// null consumes a null.
func (s *scanner) null() bool {
	if s.peek() != 'n' || !bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		return false
	}
	s.i += len("null")
	return true
}

// more advances to the next element of an array or object whose opening byte was consumed. At the end it
// consumes the closing byte and returns false.
func (s *scanner) more(first bool, end byte) (bool, error) {
	switch c := s.peek(); {
	case c == end:
		s.i++
		return false, nil
	case first:
		return true, nil
	case c == ',':
		s.i++
		if s.peek() == end {
			return false, errJSON
		}
		return true, nil
	}
	return false, errJSON
}

// key reads an object's key and its colon.
func (s *scanner) key() ([]byte, error) {
	k, err := s.str()
	if err != nil {
		return nil, err
	}
	if !s.take(':') {
		return nil, errJSON
	}
	return k, nil
}

// field reads an object of which one field is wanted, with read; what names the object in errors.
func (s *scanner) field(what, name string, read func() error) error {
	return s.fields(func(key []byte) error {
		var err error
		if string(key) != name {
			err = s.skip()
		} else {
			err = read()
		}
		if err != nil {
			return fmt.Errorf("%s: %.32q: %w", what, key, err)
		}
		return nil
	})
}

// fields reads an object, each value with read.
func (s *scanner) fields(read func(key []byte) error) error {
	if !s.take('{') {
		return errJSON
	}
	for first := true; ; first = false {
		more, err := s.more(first, '}')
		if err != nil || !more {
			return err
		}
		key, err := s.key()
		if err != nil {
			return err
		}
		if err := read(key); err != nil {
			return err
		}
	}
}

// list reads an array of at most `most` elements, each with read; what names them in errors.
func (s *scanner) list(what string, most int, read func() error) error {
	if !s.take('[') {
		return errJSON
	}
	n := 0
	for first := true; ; first = false {
		more, err := s.more(first, ']')
		if err != nil || !more {
			return err
		}
		if n++; n > most {
			return fmt.Errorf("more than %d %s", most, what)
		}
		if err := read(); err != nil {
			return err
		}
	}
}

// str reads a string and returns its raw content: no string that is read here contains escapes.
func (s *scanner) str() ([]byte, error) {
	if !s.take('"') {
		return nil, errJSON
	}
	from := s.i
	for {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			return nil, errJSON
		}
		end := s.i + n
		s.i = end + 1
		slashes := 0
		for p := end - 1; p >= from && s.b[p] == '\\'; p-- {
			slashes++
		}
		if slashes%2 == 0 {
			return s.b[from:end], nil
		}
	}
}

// skip skips any value.
func (s *scanner) skip() error {
	switch s.peek() {
	case '"':
		_, err := s.str()
		return err
	case '{', '[':
		return s.skipNested()
	case 0, '}', ']', ',', ':':
		return errJSON
	}
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ',', '}', ']', ' ', '\t', '\n', '\r':
			return nil
		case '"', '{', '[', ':':
			return errJSON
		}
		s.i++
	}
	return nil
}

func (s *scanner) skipNested() error {
	var closing [maxDepth]byte
	depth := 0
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case '"':
			if _, err := s.str(); err != nil {
				return err
			}
			continue
		case '{', '[':
			if depth == maxDepth {
				return errJSON
			}
			closing[depth] = c + 2 // in ASCII, '}' is '{'+2 and ']' is '['+2
			depth++
		case '}', ']':
			depth--
			if closing[depth] != c {
				return errJSON
			}
			if depth == 0 {
				s.i++
				return nil
			}
		}
		s.i++
	}
	return errJSON
}

// raw skips any value and returns its text.
func (s *scanner) raw() ([]byte, error) {
	s.peek()
	from := s.i
	if err := s.skip(); err != nil {
		return nil, err
	}
	return s.b[from:s.i], nil
}
