package rpc

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/topics"
)

// logJSON is a log as geth writes it.
func logJSON(block, index int) string {
	return fmt.Sprintf(`{"address":"0x5fbdb2315678afecb367f032d93f642f64180aa3","topics":["0x%064x","0x%064x","0x%064x"],"data":"0x%0320x","blockNumber":"0x%x","transactionHash":"0x%064x","transactionIndex":"0x%x","blockHash":"0x%064x","blockTimestamp":"0x77359400","logIndex":"0x%x","removed":false}`,
		1, index, block, index*7, block, index, index, block, index)
}

// A batch is taken only where it answers each request once: one that is not answered would look like an
// answer of nothing.
func TestBatchAnswersEachOnce(t *testing.T) {
	reply := func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":"0x1"}`, id) }
	for answers, taken := range map[string]bool{
		reply(7) + "," + reply(8):             true,
		reply(8) + "," + reply(7):             true,
		`{"result":"0x1","id":8},` + reply(7): true,
		"":                                    false,
		reply(7):                              false,
		reply(7) + "," + reply(7):             false,
		reply(7) + "," + reply(9):             false,
		reply(6) + "," + reply(8):             false,
		reply(7) + "," + reply(8) + "," + reply(8): false,
		reply(7) + "," + `{"result":"0x1"}`:        false,
		reply(7) + "," + reply(8)[:20]:             false,
	} {
		answered := make([]int, 2)
		calls := make([]call, len(answered))
		for i := range calls {
			calls[i].result = func(s *scanner) error { answered[i]++; return s.skip() }
		}
		err := decode([]byte("["+answers+"]"), 7, calls)
		var l *lie
		switch {
		case taken && (err != nil || answered[0] != 1 || answered[1] != 1):
			t.Errorf("%s: %v, answered %v", answers, err, answered)
		case !taken && (!errors.As(err, &l) || l.kind != "batch"):
			t.Errorf("%s: %v, want a lie about the batch", answers, err)
		}
	}
}

func decodeLogs(b []byte) ([]topics.Log, error) {
	var d logDecoder
	s := &scanner{b: b}
	if err := d.decode(s); err != nil {
		return nil, err
	}
	if s.peek() != 0 {
		return nil, errJSON
	}
	return d.logs, nil
}

// reference decodes with encoding/json, exact keys, and the same strictness.
func reference(b []byte) ([]topics.Log, error) {
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, err
	}
	var logs []topics.Log
	for _, m := range all {
		var (
			l        topics.Log
			number   hexutil.Uint64
			tx, inx  hexutil.Uint64
			data     hexutil.Bytes
			removed  *bool
			firstErr error
		)
		if m == nil {
			return nil, errMissing
		}
		field := func(key string, into any) {
			v, ok := m[key]
			if !ok && key != "removed" || string(v) == "null" {
				firstErr = errMissing
			} else if ok {
				if err := json.Unmarshal(v, into); err != nil {
					firstErr = err
				}
			}
		}
		field("address", &l.Address)
		field("topics", &l.Topics)
		field("data", &data)
		field("blockNumber", &number)
		field("transactionHash", &l.TxHash)
		field("transactionIndex", &tx)
		field("blockHash", &l.Block.Hash)
		field("logIndex", &inx)
		field("removed", &removed)
		if firstErr != nil {
			return nil, firstErr
		}
		if removed != nil && *removed || len(l.Topics) > 4 || tx>>32 != 0 || inx>>32 != 0 {
			return nil, errRemoved
		}
		l.Block.Number, l.TxIndex, l.LogIndex, l.Data = uint64(number), uint32(tx), uint32(inx), data
		logs = append(logs, l)
	}
	return logs, nil
}

// equalLogs treats nil and empty alike.
func equalLogs(a, b []topics.Log) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, y := a[i], b[i]
		if len(x.Topics) != len(y.Topics) || string(x.Data) != string(y.Data) {
			return false
		}
		for k := range x.Topics {
			if x.Topics[k] != y.Topics[k] {
				return false
			}
		}
		x.Topics, x.Data, y.Topics, y.Data = nil, nil, nil, nil
		if !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

var decodeTests = []struct {
	name string
	in   string
	want string // in the error; empty: none
}{
	{"none", `[]`, ""},
	{"one", "[" + logJSON(7, 1) + "]", ""},
	{"white space and order", "\n[ {\t\"logIndex\" : \"0x1\" , \"blockHash\":\"0x" + strings.Repeat("ab", 32) + "\",\"transactionIndex\":\"0x0\",\"transactionHash\":\"0x" + strings.Repeat("cd", 32) + "\",\"blockNumber\":\"0x9\",\"data\":\"0x\",\"topics\":[ ],\"address\":\"0x" + strings.Repeat("Ef", 20) + "\" } ]", ""},
	{"capital prefix", "[" + strings.ReplaceAll(logJSON(7, 1), `"0x`, `"0X`) + "]", ""},
	{"unknown fields", "[" + strings.Replace(logJSON(7, 1), `{"address"`, `{"x":{"y":[1,"}]\"",null,{"z":-1e9}]},"address"`, 1) + "]", ""},
	{"no array", `{}`, "malformed JSON"},
	{"null log", `[null]`, "malformed JSON"},
	{"trailing comma", "[" + logJSON(7, 1) + ",]", "malformed JSON"},
	{"cut", "[" + logJSON(7, 1)[:200], "malformed JSON"},
	{"removed", "[" + strings.Replace(logJSON(7, 1), `"removed":false`, `"removed":true`, 1) + "]", "removed"},
	{"pending", "[" + strings.Replace(logJSON(7, 1), `"blockNumber":"0x7"`, `"blockNumber":null`, 1) + "]", "malformed JSON"},
	{"no field", "[" + strings.Replace(logJSON(7, 1), `"logIndex"`, `"logIdx"`, 1) + "]", "missing"},
	{"short hash", "[" + strings.Replace(logJSON(7, 1), `"blockHash":"0x0`, `"blockHash":"0x`, 1) + "]", "malformed hex"},
	{"odd data", "[" + strings.Replace(logJSON(7, 1), `"data":"0x0`, `"data":"0x`, 1) + "]", "malformed hex"},
	{"not hex", "[" + strings.Replace(logJSON(7, 1), `"data":"0x0`, `"data":"0xg`, 1) + "]", "malformed hex"},
	{"large index", "[" + strings.Replace(logJSON(7, 1), `"logIndex":"0x1"`, `"logIndex":"0x100000000"`, 1) + "]", "malformed hex"},
	{"five topics", "[" + strings.Replace(logJSON(7, 1), `"topics":[`, `"topics":["0x`+strings.Repeat("0", 64)+`","0x`+strings.Repeat("0", 64)+`",`, 1) + "]", "more than four"},
}

func TestDecodeLogs(t *testing.T) {
	for _, test := range decodeTests {
		t.Run(test.name, func(t *testing.T) {
			got, err := decodeLogs([]byte(test.in))
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, %v; want an error with %q", got, err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want, err := reference([]byte(test.in))
			if err != nil || !equalLogs(got, want) {
				t.Errorf("got %+v, encoding/json %+v, %v", got, want, err)
			}
		})
	}
}

// FuzzDecodeLogs: on every valid JSON that encoding/json accepts as logs, the decoder agrees with it; of
// what it accepts beside that, it differs only in numbers with leading zeros.
func FuzzDecodeLogs(f *testing.F) {
	for _, test := range decodeTests {
		f.Add([]byte(test.in))
	}
	f.Add([]byte("[" + logJSON(1, 1) + "," + logJSON(2, 5) + "]"))
	f.Add([]byte("null"))
	f.Add([]byte("[" + strings.Replace(logJSON(7, 1), `"data":`, `"data":"0","data":`, 1) + "]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decodeLogs(b)
		if !json.Valid(b) || strings.ContainsRune(string(b), '\\') || strings.Contains(string(b), `""`) {
			return // no panic is all that is asked; the reference takes an empty text for zero, and we do not
		}
		want, wantErr := reference(b)
		if err != nil && (strings.Contains(string(b), "null") || repeats(b)) {
			return // nor null; and of a field that comes twice the reference looks at the last alone
		}
		if wantErr == nil && (err != nil || !equalLogs(got, want)) {
			t.Errorf("decoded %+v, %v; encoding/json %+v", got, err, want)
		}
	})
}

// repeats reports whether a log of valid JSON has a field twice.
func repeats(b []byte) bool {
	var all []json.RawMessage
	if json.Unmarshal(b, &all) != nil {
		return false
	}
	for _, log := range all {
		fields := json.NewDecoder(bytes.NewReader(log))
		if first, err := fields.Token(); err != nil || first != json.Delim('{') {
			continue
		}
		seen := map[json.Token]bool{}
		for fields.More() {
			key, err := fields.Token()
			if err != nil || seen[key] {
				return err == nil
			}
			seen[key] = true
			var value json.RawMessage
			if fields.Decode(&value) != nil {
				return false
			}
		}
	}
	return false
}

func FuzzDecodeHeader(f *testing.F) {
	bloom := strings.Repeat("01", types.BloomByteLength)
	f.Add([]byte(`{"number":"0x5","hash":"0x` + strings.Repeat("aa", 32) + `","parentHash":"0x` + strings.Repeat("bb", 32) + `","timestamp":"0x6","logsBloom":"0x` + bloom + `","transactions":[{"a":[]}]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got follow.Header
		err := decodeHeader(&scanner{b: b}, &got, false)
		if err != nil || !json.Valid(b) || strings.ContainsRune(string(b), '\\') {
			return
		}
		var m map[string]json.RawMessage
		if json.Unmarshal(b, &m) != nil {
			t.Fatalf("decoded %s, which is no object", b)
		}
		var hash, parent common.Hash
		if json.Unmarshal(m["hash"], &hash) != nil || json.Unmarshal(m["parentHash"], &parent) != nil || hash != got.Hash || parent != got.Parent {
			t.Errorf("decoded hash %s and parent %s of %s", got.Hash, got.Parent, b)
		}
	})
}

func FuzzDecodeReply(f *testing.F) {
	f.Add([]byte(`[{"jsonrpc":"2.0","id":1,"result":[]},{"jsonrpc":"2.0","result":[],"id":2}]`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32005,"message":"query returned more than 10000 results"}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","result":{}}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		notification(b, true)
		for n := 1; n <= 2; n++ {
			calls := make([]call, n)
			answered := make([]int, n)
			for i := range calls {
				calls[i] = call{method: "m", result: func(s *scanner) error { answered[i]++; return s.skip() }}
			}
			if err := decode(b, 1, calls); err == nil {
				for i, k := range answered {
					if k == 0 {
						t.Errorf("call %d of %d has no answer in %s", i, n, b)
					}
				}
			}
		}
	})
}

// TestUnhex: every byte in every place, against the table.
func TestUnhex(t *testing.T) {
	for at := range 10 {
		for c := range 256 {
			src := []byte("09afAF7b12")
			src[at] = byte(c)
			var got [5]byte
			err := unhex(got[:], src)
			want, wantErr := hex.DecodeString(string(src))
			if (err == nil) != (wantErr == nil) || err == nil && string(got[:]) != string(want) {
				t.Errorf("%q: %x, %v; encoding/hex %x, %v", src, got, err, want, wantErr)
			}
		}
	}
}

func TestQuantity(t *testing.T) {
	for _, n := range []uint64{0, 1, 15, 16, 255, 4096, 1<<32 - 1, 1 << 63, 1<<64 - 1} {
		s := &scanner{b: appendQuantity(nil, n)}
		if got, err := s.quantity(64); err != nil || got != n || string(s.b) != fmt.Sprintf(`"0x%x"`, n) {
			t.Errorf("%d: wrote %s, read %d, %v", n, s.b, got, err)
		}
	}
	for _, bad := range []string{`"0x"`, `"1"`, `"0x10000000000000000"`, `"0xg"`, `1`, `""`} {
		if n, err := (&scanner{b: []byte(bad)}).quantity(64); err == nil {
			t.Errorf("%s: read %d", bad, n)
		}
	}
}

// BenchmarkReference is encoding/json on the same logs, as a scale.
func BenchmarkReference(b *testing.B) {
	in := []byte("[" + logJSON(7, 1) + "]")
	for b.Loop() {
		var logs []types.Log
		if err := json.Unmarshal(in, &logs); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "logs/s")
}

func BenchmarkDecodeLogs(b *testing.B) {
	const n = 1000
	parts := make([]string, n)
	for i := range parts {
		parts[i] = logJSON(i/10, i)
	}
	in := []byte("[" + strings.Join(parts, ",") + "]")
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if logs, err := decodeLogs(in); err != nil || len(logs) != n {
			b.Fatal(len(logs), err)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "logs/s")
}
