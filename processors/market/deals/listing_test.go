package deals

import (
	"bytes"
	"cmp"
	"math"
	"testing"

	"github.com/holiman/uint256"
	"pgregory.net/rapid"

	"github.com/lienstream/lienstream/processors/market/rules"
	"github.com/lienstream/lienstream/topics"
)

// before is what the orders mean, said without bytes: negative where a comes first.
func before(sort Sort, a, b *topics.Deal) int {
	openEnded := func(d *topics.Deal) int {
		if d.ListingExpiry == 0 {
			return 1
		}
		return 0
	}
	costBps := func(d *topics.Deal) *uint256.Int {
		over := new(uint256.Int).Sub(&d.Cap, &d.MinPrice)
		return over.Div(over.Mul(over, uint256.NewInt(10_000)), &d.MinPrice)
	}
	var order int
	switch sort {
	case SortNewest:
		order = cmp.Compare(b.ListedAt, a.ListedAt)
	case SortExpiry:
		order = cmp.Or(cmp.Compare(openEnded(a), openEnded(b)), cmp.Compare(a.ListingExpiry, b.ListingExpiry))
	case SortCap:
		order = b.Cap.Cmp(&a.Cap)
	default:
		order = costBps(a).Cmp(costBps(b))
	}
	return cmp.Or(order, b.ID.Cmp(&a.ID))
}

func TestListingKeysOrderAsTheSortsSay(t *testing.T) {
	small := rapid.Uint64Range(0, 3)
	anyTime := rapid.OneOf(small, rapid.Uint64Range(0, 1<<40-1))
	amount := rapid.Custom(func(t *rapid.T) uint256.Int {
		n := uint256.NewInt(rapid.OneOf(small, rapid.Uint64()).Draw(t, "low"))
		n.Lsh(n, rapid.SampledFrom([]uint{0, 64}).Draw(t, "shift")) // up to 128 bits
		return *n.AddUint64(n, 1)
	})
	deal := rapid.Custom(func(t *rapid.T) *topics.Deal {
		d := &topics.Deal{
			ID: amount.Draw(t, "id"), ListedAt: anyTime.Draw(t, "listed"), ListingExpiry: anyTime.Draw(t, "expiry"),
			Cap: amount.Draw(t, "cap"), MinPrice: amount.Draw(t, "price"),
		}
		if d.Cap.Lt(&d.MinPrice) {
			d.Cap, d.MinPrice = d.MinPrice, d.Cap
		}
		return d
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := deal.Draw(t, "a"), deal.Draw(t, "b")
		for sort := range Sorts {
			ka, kb := ListingKey(sort, a), ListingKey(sort, b)
			if got, want := bytes.Compare(ka, kb), before(sort, a, b); got != want {
				t.Errorf("sort %d: keys say %d, want %d", sort, got, want)
			}
			if id := ID(ka); !id.Eq(&a.ID) {
				t.Errorf("sort %d: key is of deal %s", sort, id.Dec())
			}
		}
	})
}

func TestExpiredBeforePartsTheExpiredFromTheOthers(t *testing.T) {
	for _, now := range []uint64{0, 1, 5, 1 << 40} {
		for _, expiry := range []uint64{0, 1, 4, 5, 6, math.MaxUint64} {
			for _, id := range []*uint256.Int{uint256.NewInt(1), new(uint256.Int).SetAllOne()} {
				d := &topics.Deal{ID: *id, ListingExpiry: expiry}
				behind := bytes.Compare(ListingKey(SortExpiry, d), ExpiredBefore(now)) > 0
				if behind == rules.ListingExpired(expiry, now) {
					t.Errorf("expiry %d at %d: expired %t, behind %t", expiry, now, !behind, behind)
				}
			}
		}
	}
}

func TestCostOfImpossibleTermsIsAtTheEnds(t *testing.T) {
	free := &topics.Deal{Cap: *uint256.NewInt(5)}
	if c := cost(free); !c.Eq(new(uint256.Int).SetAllOne()) {
		t.Errorf("no price: cost %s", c.Dec())
	}
	below := &topics.Deal{Cap: *uint256.NewInt(5), MinPrice: *uint256.NewInt(6)}
	if c := cost(below); !c.IsZero() {
		t.Errorf("cap below the price: cost %s", c.Dec())
	}
}

func TestKeysNameTheirDealAndBid(t *testing.T) {
	for _, n := range []uint64{0, 1, math.MaxUint64} {
		id := uint256.NewInt(n)
		if got := ID(Key(id)); !got.Eq(id) {
			t.Errorf("key of deal %d is of %s", n, got.Dec())
		}
		key := BidKey(uint256.NewInt(7), id)
		if got := BidID(key); !got.Eq(id) || !bytes.HasPrefix(key, Key(uint256.NewInt(7))) {
			t.Errorf("key %x is of bid %s", key, got.Dec())
		}
	}
}

func FuzzDecodeListingFilter(f *testing.F) {
	f.Add(ListingFilter{Lane: 2, Term: 7, Asset: [20]byte{1}, Expiry: 9}.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		filter, err := DecodeListingFilter(b)
		if again := filter.append(nil); err == nil && !bytes.Equal(again, b) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}
