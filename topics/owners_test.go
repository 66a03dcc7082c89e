package topics

import (
	"testing"
	"time"
)

func FuzzDecodeOwner(f *testing.F) {
	o := Owner{
		Application: AppMarket, Partition: 3, Instance: "indexer-0", Addr: "10.0.0.1:42070", Role: RoleOwner, Incarnation: 9,
		At: BlockRef{Number: 7, Hash: [32]byte{1}, Timestamp: 8}, Latest: 10, ObservedAt: time.Unix(11, 0).UTC(), Reverts: 2, State: StateRunning, Silent: "kafka1:9092",
	}
	value, err := o.Encode()
	if err != nil {
		f.Fatal(err)
	}
	if got, gone, err := DecodeOwner(o.Key(), value); err != nil || gone || got != o {
		f.Fatalf("%+v, gone %t, %v", got, gone, err)
	}
	if got, gone, err := DecodeOwner(o.Key(), nil); err != nil || !gone || got.Partition != 3 || got.Instance != o.Instance {
		f.Fatalf("tombstone: %+v, gone %t, %v", got, gone, err)
	}
	other := o
	other.Application = "support"
	value, err = other.Encode()
	if got, gone, bad := DecodeOwner(other.Key(), value); err != nil || bad != nil || gone || got != other {
		f.Fatalf("%+v, gone %t, %v, %v", got, gone, err, bad)
	}
	if _, _, err := DecodeOwner(o.Key(), value); err == nil {
		f.Fatal("a record of another application passes for the market's")
	}
	f.Add(other.Key(), value)
	f.Add(o.Key(), value)
	f.Add([]byte("4/indexer-0"), value)
	f.Add([]byte("-1/x"), value)
	f.Add([]byte("3"), []byte("{}"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		o, gone, err := DecodeOwner(key, value)
		if err != nil || gone {
			return
		}
		if o.Partition < 0 || o.Instance == "" {
			t.Errorf("%q names nobody: %+v", key, o)
		}
	})
}
