package hotcache

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lienstream/lienstream/processors/market/deals"
	"github.com/lienstream/lienstream/processors/market/query"
	"github.com/lienstream/lienstream/topics"
)

func TestConfigNamesEveryFault(t *testing.T) {
	if err := testConfig("redis://:secret@localhost:6379/2", 16).Validate(); err != nil {
		t.Fatal(err)
	}
	c := Config{URL: "http://user:secret@host", Timeout: time.Second, MaxLag: -1}
	err := c.Validate()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{
		"redis: ", "prefix", "chain id", "partitions", "redis timeout", "max lag", "max failures", "probe interval",
		"max scan", "pool size", "write timeout", "beat", "takeover", "max pending", "chunk rows", "keep expired", "backoff",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no fault of %s", want)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Error("the password is in the error")
	}
}

func mark(number, fork, reverts uint64) query.Watermark {
	return query.Watermark{At: block(number, fork), Reverts: reverts}
}

func TestTrail(t *testing.T) {
	var tr recentBlocks
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	known := func(number, fork uint64, now int) (int, bool) {
		lag, ok := tr.overtaken(number, block(number, fork).Hash, at(now))
		return int(lag / time.Second), ok
	}
	for i := range 4 {
		tr.observe(mark(uint64(10+i), 0, 0), at(i))
	}
	tr.observe(mark(13, 0, 0), at(9)) // told again: nothing new
	for _, c := range []struct {
		number, fork uint64
		lag          int
		ok           bool
	}{
		{10, 0, 8, true}, {12, 0, 6, true}, {13, 0, 0, true}, {14, 0, 0, false}, {12, 1, 0, false}, {9, 0, 0, false},
	} {
		if lag, ok := known(c.number, c.fork, 9); lag != c.lag || ok != c.ok {
			t.Errorf("block %d of fork %d: %d s, %v", c.number, c.fork, lag, ok)
		}
	}
	tr.observe(mark(11, 0, 0), at(10)) // another node is less far
	if _, ok := known(12, 0, 10); ok {
		t.Error("a block above the watermark is known")
	}
	if lag, ok := known(10, 0, 11); !ok || lag != 10 {
		t.Errorf("block 10: %d s, %v", lag, ok)
	}
	tr.observe(mark(14, 1, 2), at(12)) // a reorg
	if _, ok := known(11, 0, 12); ok {
		t.Error("a block before a reorg is known")
	}
	for i := range uint64(3 * recentBlocksMax) {
		tr.observe(mark(20+i, 1, 2), at(20))
	}
	if len(tr.seen) != recentBlocksMax {
		t.Errorf("%d blocks", len(tr.seen))
	}
}

func TestBreaker(t *testing.T) {
	b := newBreaker(3)
	for _, f := range []struct {
		do   func()
		open bool
	}{
		{func() { b.failed() }, false},
		{func() { b.failed() }, false},
		{b.succeeded, false}, // the row is broken
		{func() { b.failed() }, false},
		{func() { b.failed() }, false},
		{func() { b.failed() }, true},
		{b.succeeded, true}, // an answer that was on its way
		{func() { b.failed() }, true},
		{b.close, false},
	} {
		f.do()
		if b.open() != f.open {
			t.Fatalf("open: %v", b.open())
		}
	}
	if len(b.opened) != 1 {
		t.Error("no probe is due, or more than one")
	}
}

func sample(bids int) (*topics.Deal, *offers) {
	e := listing(42)
	o := &offers{}
	d := &topics.Deal{
		ID: e.DealID, Borrower: e.Borrower, Lane: 2, Token: e.Token, AmountOrTokenID: e.AmountOrTokenID, Cap: e.Cap,
		MinPrice: e.MinPrice, Term: e.Term, ListedAt: e.ListedAt, ListingExpiry: 77, TermsHash: e.TermsHash, OpenBids: uint32(bids),
	}
	for i := range bids {
		o.bids = append(o.bids, topics.Bid{ID: word(uint64(i)), DealID: e.DealID, Price: word(9 + uint64(i)), Expiry: 100 + uint64(i), TermsHash: e.TermsHash})
	}
	return d, o
}

// TestRowHeader holds row.go and the offsets in write.lua together.
func TestRowHeader(t *testing.T) {
	d, o := sample(2)
	e, err := newEntry(258, d, o)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for sort := range deals.Sorts {
		position := deals.ListingKey(sort, d)
		if len(position) != positionBytes[sort] {
			t.Errorf("sort %d: a position of %d bytes", sort, len(position))
		}
		n := len(position) - dealKeyBytes
		if string(e.row[at:at+n]) != string(position[:n]) || string(position[n:]) != string(e.key) {
			t.Errorf("sort %d: another position in the header", sort)
		}
		at += n
	}
	if at != 64 || binary.BigEndian.Uint16(e.row[64:]) != 258 || e.row[66] != 2 ||
		binary.BigEndian.Uint32(e.row[67:]) != d.Term || binary.BigEndian.Uint64(e.row[71:]) != 77 ||
		string(e.row[79:99]) != string(d.Token[:]) {
		t.Errorf("header %x", e.row[:headerBytes])
	}
	for now, want := range map[uint64]query.Acceptable{99: {Count: 2, Best: &o.bids[1]}, 100: {Count: 1, Best: &o.bids[1]}, 101: {}} {
		got, err := decodeRow(string(e.row), now)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(query.DealWithBids{Deal: *d, Acceptable: want}, got); diff != "" {
			t.Errorf("at %d: %s", now, diff)
		}
	}
}

// A row whose bids are summed up answers as of the times that the sum holds at, and no others.
func TestRowOfASum(t *testing.T) {
	d, all := sample(1)
	e, err := newEntry(1, d, &offers{summed: true, count: 70, from: 50, until: 60, bids: all.bids})
	if err != nil {
		t.Fatal(err)
	}
	for now, holds := range map[uint64]bool{49: false, 50: true, 59: true, 60: false} {
		got, err := decodeRow(string(e.row), now)
		switch {
		case !holds && !errors.Is(err, errAnotherTime):
			t.Errorf("at %d: %v", now, err)
		case holds && (err != nil || got.Acceptable.Count != 70 || got.Acceptable.Best.ID != all.bids[0].ID):
			t.Errorf("at %d: %+v, %v", now, got.Acceptable, err)
		}
	}
}

func FuzzDecodeRow(f *testing.F) {
	for bids := range 3 {
		d, o := sample(bids)
		o.summed = bids == 1
		e, err := newEntry(1, d, o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(e.row))
		f.Add(string(e.row[:len(e.row)-1]))
	}
	f.Add("")
	f.Fuzz(func(t *testing.T, row string) {
		d, o, err := decodeParts(row)
		if err != nil {
			return
		}
		e, err := newEntry(0, &d, &o)
		if err != nil {
			t.Fatal(err)
		}
		again, same, err := decodeParts(string(e.row))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(d, again) + cmp.Diff(o, same, cmp.AllowUnexported(offers{})); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzParseReply(f *testing.F) {
	f.Add("ok", "7", strings.Repeat("ab", 32), "9", "0", "row")
	f.Add("torn", "", "", "", "", "")
	f.Add("ok", "-1", "zz", "", "x", "")
	f.Fuzz(func(_ *testing.T, status, number, hash, timestamp, reverts, row string) {
		p, err := parseReply([]any{status, number, hash, timestamp, reverts, int64(1), int64(1), row})
		if err == nil {
			_, _ = p.decode(deals.SortNewest)
		}
		_, _ = parseReply([]any{status})
		_, _ = parseReply([]any{int64(1), nil})
	})
}
