package topics

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"unicode/utf8"

	"github.com/twmb/avro"
)

// parsed are the schemas parsed by the Avro library, for use outside the hot path.
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

// Text converts a value of a topic of this kind to something that encodes to readable JSON: the fields and the
// name of a record with a schema, the JSON of a control record, hex for private formats. Nil is a tombstone.
func Text(kind Kind, value []byte) (any, error) {
	if value == nil {
		return nil, nil //nolint:nilnil // a tombstone has no value and is no error
	}
	switch kind {
	case KindRaw, KindEntity:
		return avroText(value)
	case KindEvent:
		if len(value) == 0 || value[0] != '{' { // Avro begins with a zero byte; an application's audit record is JSON
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

// TextKey is a readable key: the text itself, or hex.
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

// hexBytes replaces all bytes in a decoded value by hex.
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
