package topics

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/twmb/avro"
)

// parsed are the schemas as the library knows them, for whatever is not the hot path.
var parsed = sync.OnceValues(func() (map[uint32]*avro.Schema, error) {
	all := map[uint32]*avro.Schema{}
	for _, s := range schemas {
		p, err := avro.Parse(s.Text())
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", s.Name, err)
		}
		all[s.ID] = p
	}
	return all, nil
})

// Text is a value of a topic of that kind as something that encodes to JSON for people: the fields of a
// record with a schema and its name, the JSON of a control record, hex for what is private. Nil is a
// tombstone.
func Text(kind Kind, value []byte) (any, error) {
	if value == nil {
		return nil, nil //nolint:nilnil // a tombstone has no value and is no error
	}
	switch kind {
	case KindRaw, KindEntity:
		return avroText(value)
	case KindEvent:
		if len(value) == 0 || value[0] != '{' { // Avro begins with a zero; an application's audit is JSON
			return avroText(value)
		}
		fallthrough
	case KindControl:
		if json.Valid(value) {
			return json.RawMessage(value), nil
		}
	case KindChangelog, KindCommand:
	}
	return "0x" + hex.EncodeToString(value), nil
}

// TextKey is a key for people: as it is where it is text, else hex.
func TextKey(key []byte) any {
	if key == nil {
		return nil
	}
	if utf8.Valid(key) {
		for _, c := range key {
			if c < ' ' {
				return "0x" + hex.EncodeToString(key)
			}
		}
		return string(key)
	}
	return "0x" + hex.EncodeToString(key)
}

func avroText(value []byte) (any, error) {
	s, body, err := SplitHeader(value)
	if err != nil {
		return nil, err
	}
	all, err := parsed()
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	rest, err := all[s.ID].Decode(body, &fields)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", s.Name, ErrMalformed, err)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%s: %w: %d trailing bytes", s.Name, ErrMalformed, len(rest))
	}
	for name, v := range fields {
		fields[name] = hexBytes(v)
	}
	return map[string]any{"schema": s.Name, "value": fields}, nil
}

// hexBytes turns bytes, wherever they are in a decoded value, into hex.
func hexBytes(v any) any {
	switch v := v.(type) {
	case []byte:
		return "0x" + hex.EncodeToString(v)
	case []any:
		for i := range v {
			v[i] = hexBytes(v[i])
		}
	}
	return v
}
