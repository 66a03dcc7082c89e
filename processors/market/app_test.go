package market_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/market"
	"github.com/lienstream/lienstream/processors/market/markettest"
	"github.com/lienstream/lienstream/topics"
)

var _ engine.App = (*market.App)(nil)

// Numbers of tables are in every key on disk: the page of them is what the families say.
// LIENSTREAM_REWRITE=1 writes it.
func TestPageOfTables(t *testing.T) {
	const page = "../../docs/tables.md"
	var lines []string
	seen := map[byte]string{}
	for _, f := range market.Families(markettest.Deployment).Families() {
		for _, table := range f.Tables {
			if other, ok := seen[table.ID]; ok {
				t.Errorf("%s and %s are both table %d", table.Name, other, table.ID)
			}
			seen[table.ID] = table.Name
			topic := "none"
			if table.Entity != nil {
				topic = "`ent." + table.Entity.Name + "`"
			}
			lines = append(lines, fmt.Sprintf("| %3d | %s | %s | %s |\n", table.ID, table.Name, f.Name, topic))
		}
	}
	slices.Sort(lines)
	now := "# Tables of the market\n\nA table's number is in every key on disk and in the changelog: take a new one, never one that was used.\n" +
		"A test writes this page from the families.\n\n| number | table | family | published to |\n|---|---|---|---|\n" + strings.Join(lines, "")
	if os.Getenv("LIENSTREAM_REWRITE") != "" {
		if err := os.WriteFile(page, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(have), now); diff != "" {
		t.Errorf("%s is not what the families say (-page +families):\n%s", page, diff)
	}
}

// An event that changes rows is published: who follows the events comes to the same rows.
func TestWhatFamiliesApplyIsPublished(t *testing.T) {
	for _, f := range market.Families(markettest.Deployment).Families() {
		for _, event := range f.Events {
			if topics.FamilyOf(event) == "" {
				t.Errorf("%s applies %s, which no evt topic has", f.Name, event.Name())
			}
		}
	}
}

func TestTheEnginesRecordsAreNoneOfTheApplications(t *testing.T) {
	app := market.New(contracts.NewDecoder(markettest.Deployment), zap.NewNop(), nil)
	for _, rec := range []topics.Raw{&topics.BlockEnd{}, &topics.BlockRevert{}} {
		if err := app.Apply(nil, rec); err == nil {
			t.Errorf("%T applied", rec)
		}
	}
}
