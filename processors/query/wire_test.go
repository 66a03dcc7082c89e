package query

import (
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/topics"
)

func someAnswer() *answer {
	return &answer{
		At: topics.BlockRef{Number: 7, Hash: common.Hash{1, 2}, Timestamp: 9},
		Watermarks: []Watermark{{
			Partition: 3, Role: topics.RoleOwner, Incarnation: 5, At: topics.BlockRef{Number: 8}, Latest: 9,
			ObservedAt: time.Unix(10, 0), Reverts: 2,
		}},
		Items: []item{{key: []byte("k"), row: []byte("row"), bids: [][]byte{[]byte("b1"), {}}}, {key: []byte{}, row: []byte{}}},
	}
}

func TestAnswersSurviveTheWire(t *testing.T) {
	want := someAnswer()
	raw, err := encodeAnswer(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeAnswer(bytes.NewReader(raw))
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(item{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// Zero is a lane, a state and a block: gob must not lose them.
func TestRequestsKeepTheirZeros(t *testing.T) {
	want := &request{
		Op: opListings, Partitions: []int32{0, 3}, Pinned: true, HasLane: true, Lane: contracts.LaneStock, HasTerm: true,
		HasAsset: true, HasState: true, HasWallet: true, After: []byte{0}, Limit: 2,
	}
	raw, err := encodeRequest(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRequest(bytes.NewReader(raw))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestTheHandlerRefusesWhatIsNoRequest(t *testing.T) {
	h := NewHandler(nil, zap.NewNop())
	encoded := func(r request) io.Reader {
		raw, err := encodeRequest(&r)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(raw)
	}
	one := []int32{0}
	for name, c := range map[string]struct {
		method, path string
		body         io.Reader
		want         int
	}{
		"method":          {http.MethodGet, Path, nil, http.StatusMethodNotAllowed},
		"path":            {http.MethodPost, "/", nil, http.StatusNotFound},
		"empty":           {http.MethodPost, Path, strings.NewReader(""), http.StatusBadRequest},
		"garbage":         {http.MethodPost, Path, strings.NewReader("no gob at all"), http.StatusBadRequest},
		"too large":       {http.MethodPost, Path, encoded(request{After: make([]byte, maxRequestBytes)}), http.StatusBadRequest},
		"operation":       {http.MethodPost, Path, encoded(request{Op: ops, Partitions: one}), http.StatusBadRequest},
		"no partition":    {http.MethodPost, Path, encoded(request{Op: opDeal}), http.StatusBadRequest},
		"no limit":        {http.MethodPost, Path, encoded(request{Op: opDeals, Partitions: one}), http.StatusBadRequest},
		"limit":           {http.MethodPost, Path, encoded(request{Op: opDeals, Partitions: one, Limit: MaxLimit + 2}), http.StatusBadRequest},
		"sort":            {http.MethodPost, Path, encoded(request{Op: opListings, Partitions: one, Limit: 2, Sort: 9}), http.StatusBadRequest},
		"length of after": {http.MethodPost, Path, encoded(request{Op: opListings, Partitions: one, Limit: 2, After: make([]byte, 257)}), http.StatusBadRequest},
		"many partitions": {http.MethodPost, Path, encoded(request{Op: opDeal, Partitions: make([]int32, maxPartitions+1)}), http.StatusBadRequest},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, c.body))
		if w.Code != c.want {
			t.Errorf("%s: status %d, want %d", name, w.Code, c.want)
		}
	}
}

func TestAnAnswerTooLargeIsAnError(t *testing.T) {
	if _, err := encodeAnswer(&answer{Items: []item{{row: make([]byte, maxItemsBytes+1)}}}); err == nil {
		t.Error("encoded")
	}
}

func FuzzDecodeRequest(f *testing.F) {
	raw, err := encodeRequest(&request{Op: opDeals, Partitions: []int32{1}, Limit: 2, After: []byte("after")})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRequest(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, errBadRequest) {
				t.Errorf("%v is no bad request", err)
			}
			return
		}
		if again, err := encodeRequest(r); err != nil {
			t.Errorf("encode %v again: %v", again, err)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	raw, err := encodeAnswer(someAnswer())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	for cut := 1; cut < len(raw); cut += len(raw) / 7 {
		f.Add(raw[:cut])
	}
	var headOnly bytes.Buffer
	if err := gob.NewEncoder(&headOnly).Encode(head{}); err != nil {
		f.Fatal(err)
	}
	f.Add(append([]byte{0, 0, 0, byte(headOnly.Len())}, append(headOnly.Bytes(), 0xff, 0xff, 0xff, 0xff, 0x0f)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAnswer(bytes.NewReader(b))
		if err != nil {
			return
		}
		if size := itemsBytes(a.Items); size > len(b) {
			t.Errorf("%d bytes of items out of %d", size, len(b))
		}
		again, err := encodeAnswer(a)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := decodeAnswer(bytes.NewReader(again)); err != nil || !cmp.Equal(a.Items, b.Items, cmp.AllowUnexported(item{})) {
			t.Errorf("another answer comes back: %v", err)
		}
	})
}

// itemsBytes is the least that items take on the wire.
func itemsBytes(items []item) (n int) {
	for _, it := range items {
		n += 3 + len(it.key) + len(it.row)
		for _, bid := range it.bids {
			n += 1 + len(bid)
		}
	}
	return n
}
