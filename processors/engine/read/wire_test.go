package read

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/wire"
	"github.com/lienstream/lienstream/topics"
)

func someAnswer() *Response {
	return &Response{
		Moment: Moment{topics.BlockRef{Number: 7, Hash: common.Hash{1, 2}, Timestamp: 9}, 4},
		Watermarks: []Watermark{
			{
				Partition: 3, Role: topics.RoleOwner, Incarnation: 5, At: topics.BlockRef{Number: 8}, Latest: 9,
				ObservedAt: time.Unix(10, 11).UTC(), Reverts: 2, Kept: []Point{{1, 7}, {2, 8}},
			},
			{Role: topics.RoleStandby, Incarnation: -1, ObservedAt: time.Time{}},
		},
		Items: []Item{{Key: []byte("k"), Row: []byte("row"), Parts: [][]byte{[]byte("b1"), nil}}, {}},
	}
}

// page is the query of the tests' application.
type page struct {
	After []byte
	Limit int
}

func (p *page) Code(c *wire.Coder) {
	c.Bytes(&p.After, 256)
	c.Int(&p.Limit)
}

func (p *page) Validate() error {
	if p.Limit < 1 || p.Limit > 1000 {
		return errors.New("limit")
	}
	return nil
}

func toy(serve func(ctx context.Context, v *Views, q *page) ([]Item, error)) Application {
	return Application{Name: "toy", Operations: []*Operation{NewOperation("list", serve)}}
}

func TestAnswersSurviveTheWire(t *testing.T) {
	want := someAnswer()
	raw, err := appendResponse(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeResponse(raw)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if !got.Watermarks[1].ObservedAt.IsZero() {
		t.Errorf("no time comes back as %s", got.Watermarks[1].ObservedAt)
	}
}

var unexported = cmpopts.IgnoreUnexported(nodeRequest{})

func someRequest() *nodeRequest {
	return &nodeRequest{
		Application: "toy", Operation: "list", Partitions: []int32{0, 3}, Pinned: true,
		At: topics.BlockRef{Number: 1, Hash: common.Hash{2}, Timestamp: 3}, Payload: []byte{0, 1},
	}
}

func TestRequestsSurviveTheWire(t *testing.T) {
	for _, want := range []*nodeRequest{someRequest(), {Application: "a", Operation: watermarks}} {
		raw, err := encodeRequest(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeRequest(raw)
		if diff := cmp.Diff(want, got, unexported); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	}
}

// Nodes of builds with different message layouts do not read from each other, and return an error that says why.
func TestAnotherLayoutIsNotRead(t *testing.T) {
	request, err := encodeRequest(someRequest())
	if err != nil {
		t.Fatal(err)
	}
	response, err := appendResponse(nil, someAnswer())
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []byte{layout - 1, layout + 1} {
		request[0], response[0] = other, other
		if _, err := decodeRequest(request); !errors.Is(err, ErrBadRequest) || !strings.Contains(err.Error(), "another build") {
			t.Errorf("request of layout %d: %v", other, err)
		}
		if _, err := decodeResponse(response); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "another build") {
			t.Errorf("response of layout %d: %v", other, err)
		}
	}
}

func TestTheHandlerRefusesWhatIsNoRequest(t *testing.T) {
	app := toy(func(context.Context, *Views, *page) ([]Item, error) { return nil, errors.New("asked") })
	h := NewHandler(t.Context(), zap.NewNop(), Served{&marked{}, app})
	encoded := func(r nodeRequest, q wire.Value) io.Reader {
		var err error
		if q != nil {
			if r.Payload, err = wire.Append(nil, q); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := encodeRequest(&r)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.NewReader(raw)
	}
	one := []int32{0}
	list := nodeRequest{Application: "toy", Operation: "list", Partitions: one}
	for name, c := range map[string]struct {
		method, path string
		body         io.Reader
		want         int
	}{
		"method":       {http.MethodPut, Path, nil, http.StatusMethodNotAllowed},
		"no upgrade":   {http.MethodGet, Path, nil, http.StatusUpgradeRequired},
		"path":         {http.MethodPost, "/", nil, http.StatusNotFound},
		"empty":        {http.MethodPost, Path, strings.NewReader(""), http.StatusBadRequest},
		"garbage":      {http.MethodPost, Path, strings.NewReader("no request at all"), http.StatusBadRequest},
		"too large":    {http.MethodPost, Path, bytes.NewReader(make([]byte, maxRequestBytes+1)), http.StatusBadRequest},
		"application":  {http.MethodPost, Path, encoded(nodeRequest{Application: "other", Operation: "list", Partitions: one}, &page{Limit: 1}), http.StatusBadRequest},
		"operation":    {http.MethodPost, Path, encoded(nodeRequest{Application: "toy", Operation: "other", Partitions: one}, &page{Limit: 1}), http.StatusBadRequest},
		"no partition": {http.MethodPost, Path, encoded(nodeRequest{Application: "toy", Operation: "list"}, &page{Limit: 1}), http.StatusBadRequest},
		"no query":     {http.MethodPost, Path, encoded(list, nil), http.StatusBadRequest},
		"its bounds":   {http.MethodPost, Path, encoded(list, &page{Limit: 1001}), http.StatusBadRequest},
		"wait":         {http.MethodPost, Path, encoded(nodeRequest{Application: "toy", Operation: watermarks}, &watch{Wait: maxWatch + 1}), http.StatusBadRequest},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path, c.body))
		if w.Code != c.want {
			t.Errorf("%s: status %d, want %d", name, w.Code, c.want)
		}
	}
}

func TestAnAnswerTooLargeIsAnError(t *testing.T) {
	if _, err := appendResponse(nil, &Response{Items: []Item{{Row: make([]byte, maxAnswerBytes+1)}}}); err == nil {
		t.Error("encoded")
	}
}

func TestAnApplicationNamesItsFaults(t *testing.T) {
	app := toy(nil)
	app.Operations = append(app.Operations, app.Operations[0], NewOperation[page](watermarks, nil))
	app.Name = ""
	err := app.Validate()
	for _, want := range []string{"application", `"list"`, `"watermarks"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if err := toy(nil).Validate(); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	raw, err := encodeRequest(someRequest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(raw[:len(raw)/2])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRequest(b)
		if err != nil {
			if !errors.Is(err, ErrBadRequest) {
				t.Errorf("%v is no bad request", err)
			}
			return
		}
		again, err := encodeRequest(r)
		if err != nil {
			t.Fatalf("encode %v again: %v", again, err)
		}
		if same, err := decodeRequest(again); err != nil || !cmp.Equal(r, same, unexported) {
			t.Errorf("another request comes back: %v", err)
		}
	})
}

func FuzzDecodeResponse(f *testing.F) {
	raw, err := appendResponse(nil, someAnswer())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	for cut := 1; cut < len(raw); cut += len(raw) / 7 {
		f.Add(raw[:cut])
	}
	f.Add(append(bytes.Clone(raw[:40]), 0xff, 0xff, 0xff, 0xff, 0x0f))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeResponse(b)
		if err != nil {
			return
		}
		if size := itemsBytes(a.Items); size > len(b) {
			t.Errorf("%d bytes of items out of %d", size, len(b))
		}
		again, err := appendResponse(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := decodeResponse(again); err != nil || !cmp.Equal(a, b) {
			t.Errorf("another answer comes back: %v", err)
		}
	})
}

// itemsBytes is the least that items take on the wire.
func itemsBytes(items []Item) (n int) {
	for _, it := range items {
		n += itemBytes + len(it.Key) + len(it.Row)
		for _, part := range it.Parts {
			n += 1 + len(part)
		}
	}
	return n
}
