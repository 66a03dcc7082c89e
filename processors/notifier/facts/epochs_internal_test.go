package facts

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// A row of an older build says only which stage was told: what is no longer true of it is retracted, too, and what is true is not told
// again.
func TestABudgetOfAFormerBuild(t *testing.T) {
	app := New(nil, 1, Safe)
	store, err := state.Open(state.Options{Dir: "facts", Tables: app.Tables(), FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	for _, test := range []struct {
		reserved uint64
		want     []string
	}{
		{1000, nil},
		{950, []string{"returned budget90", "news budget90", "returned budget100"}},
		{10, []string{"returned budget90", "returned budget100"}},
	} {
		w := store.NewOverlay()
		w.Begin(topics.BlockRef{Number: 1}, false)
		w.Put(epochs, epochKey(5), []byte(`{"news":{"stage":6,"epoch":5,"at":1,"startsAt":1,"endsAt":9,"budget7":"1000","budget21":"1000"},"told":{"604800":8}}`))
		for range 2 { // the second one finds a row of this build
			if err := app.reserved(w, 7, 5, contracts.ShortTerm, uint256.NewInt(test.reserved)); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		w.Events(func(e state.Event, _ bool) {
			var cmd map[string]struct {
				Stage int `json:"stage"`
			}
			if err := json.Unmarshal(e.Value[1:len(e.Value)-1], &cmd); err != nil {
				t.Fatal(err)
			}
			for what, n := range cmd {
				got = append(got, what+map[int]string{7: " budget90", 8: " budget100"}[n.Stage])
			}
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%d of 1000 are reserved: %q, want %q", test.reserved, got, test.want)
		}
	}
}
