package system

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/topics/polltest"
)

// record is a line of `lienstream topics tail`, which reads committed records only.
type record struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     *struct {
		Fields map[string]any `json:"value"`
	} `json:"value"` // nil: a tombstone
}

func records(t *testing.T, w *world, topic string) []record {
	t.Helper()
	args := append([]string{"topics", "tail", "--from=0", "--log-level=error"}, w.servers...)
	args = append(args, topic) // flags come before it
	var all []record
	for line := range strings.Lines(run(t, args...)) {
		var r record
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&r); err != nil {
			t.Fatalf("%s: %v: %s", topic, err, line)
		}
		all = append(all, r)
	}
	return all
}

// families says which events of which contract an evt topic holds.
func (w *world) families() map[string]map[common.Address]abi.ABI {
	vault := map[common.Address]abi.ABI{w.market.Deployment.DealVault: w.judge.vault}
	return map[string]map[common.Address]abi.ABI{
		"deals": vault, "balances": vault,
		"assets": {w.market.Deployment.AssetRegistry: w.judge.registry},
	}
}

// of is the family of an event of the vault or the registry; empty for those that are in no topic.
func of(event string) string {
	switch {
	case strings.HasPrefix(event, "Deal"), strings.HasPrefix(event, "Bid"):
		return "deals"
	case event == "Credited", event == "Withdrawn":
		return "balances"
	case event == "AssetSet", event == "OpenRawChanged":
		return "assets"
	}
	return ""
}

// topicsEqualChain compares the event and entity topics with the chain's logs: every event of the
// canonical chain once, nothing else, and no more than a block's worth at a time.
func topicsEqualChain(t *testing.T, w *world) { t.Helper(); w.topicsEqual(t, true) }

// topicsEqual leaves out final events where the chain has reverted final blocks.
func (w *world) topicsEqual(t *testing.T, final bool) {
	t.Helper()
	head, err := w.judge.eth.HeaderByNumber(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	logs, err := w.judge.logs(t.Context(), head.Number)
	if err != nil {
		t.Fatal(err)
	}
	for family, emitters := range w.families() {
		canonical := map[string]uint64{} // key of the record to number of the block
		for _, l := range logs {
			a, ok := emitters[l.Address]
			if !ok {
				continue
			}
			if event, err := a.EventByID(l.Topics[0]); err == nil && of(event.Name) == family {
				canonical[fmt.Sprintf("%s:%d", lowerHash(l.BlockHash), l.Index)] = l.BlockNumber
			}
		}
		headFollows(t, w, family, canonical)
		if final {
			finalStays(t, w, family, canonical, head.Number.Uint64())
		}
	}
	dealsEqual(t, w, lowerHash(head.Hash()))
}

// headFollows: an event is published, then perhaps retracted, in turns. What is served at the tip is in the topics a
// commit later.
func headFollows(t *testing.T, w *world, family string, canonical map[string]uint64) {
	t.Helper()
	polltest.Within(t, 30*time.Second, func() error {
		there := headRecords(t, w, family)
		if len(there) == 0 {
			return fmt.Errorf("evt.%s is empty", family)
		}
		for key := range canonical {
			if !there[key] {
				return fmt.Errorf("evt.%s lacks %s of block %d", family, key, canonical[key])
			}
			delete(there, key)
		}
		for key, present := range there {
			if present {
				return fmt.Errorf("evt.%s has %s, which is not on the chain", family, key)
			}
		}
		return nil
	})
}

// headRecords are the events that were published; false: retracted.
func headRecords(t *testing.T, w *world, family string) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	for _, r := range records(t, w, "evt."+family) {
		if of(r.Value.Fields["event"].(string)) != family {
			continue // of a contract of the token layer
		}
		removed := r.Value.Fields["removed"].(bool)
		if there[r.Key] == !removed {
			t.Fatalf("evt.%s %d/%d: %s is there: %t, and the record says removed: %t", family, r.Partition, r.Offset, r.Key, there[r.Key], removed)
		}
		there[r.Key] = !removed
	}
	return there
}

// window is how far below the head a block is final at the latest, reorgs and idle barriers included.
const window = 200

// finalStays: an event is there at most once, in the chain's order, and always if its block is far below the head. The
// ingester polls every two seconds what is final, so the test waits for that.
func finalStays(t *testing.T, w *world, family string, canonical map[string]uint64, head uint64) {
	t.Helper()
	polltest.Within(t, 30*time.Second, func() error {
		there := finalRecords(t, w, family, canonical)
		if len(there) == 0 {
			return fmt.Errorf("evt.%s.final is empty", family)
		}
		for key, block := range canonical {
			if block+window < head && !there[key] {
				return fmt.Errorf("evt.%s.final lacks %s of block %d, the head is %d", family, key, block, head)
			}
		}
		return nil
	})
}

// finalRecords are the final events that are there.
func finalRecords(t *testing.T, w *world, family string, canonical map[string]uint64) map[string]bool {
	t.Helper()
	there := map[string]bool{}
	last := map[int32]uint64{}
	for _, r := range records(t, w, "evt."+family+".final") {
		if of(r.Value.Fields["event"].(string)) != family {
			continue
		}
		block, ok := canonical[r.Key]
		if !ok || there[r.Key] || r.Value.Fields["removed"].(bool) {
			t.Fatalf("evt.%s.final %d/%d: %s is on the chain: %t, is there: %t", family, r.Partition, r.Offset, r.Key, ok, there[r.Key])
		}
		if block < last[r.Partition] {
			t.Fatalf("evt.%s.final %d/%d: block %d after block %d", family, r.Partition, r.Offset, block, last[r.Partition])
		}
		there[r.Key], last[r.Partition] = true, block
	}
	return there
}

// dealsEqual: the latest record of each deal is what the contracts say.
func dealsEqual(t *testing.T, w *world, block string) {
	t.Helper()
	want, err := w.judge.at(t.Context(), hash(block))
	if err != nil {
		t.Fatal(err)
	}
	latest := map[string]map[string]any{}
	for _, r := range records(t, w, "ent.deal") {
		delete(latest, r.Key)
		if r.Value != nil {
			latest[r.Key] = r.Value.Fields
		}
	}
	columns := map[string]string{
		"state": "state", "cap": "cap", "min_price": "minPrice", "borrower": "borrower", "lane": "lane", "token": "token",
	}
	for id, d := range want.Deals {
		row := latest[id]
		if row == nil {
			t.Fatalf("ent.deal lacks %s", id)
		}
		for column, field := range columns {
			if fmt.Sprint(row[column]) != fmt.Sprint(d[field]) {
				t.Fatalf("ent.deal %s: %s is %v, the chain says %v", id, column, row[column], d[field])
			}
		}
		delete(latest, id)
	}
	for id := range latest {
		t.Fatalf("ent.deal has %s, which is not on the chain", id)
	}
}
