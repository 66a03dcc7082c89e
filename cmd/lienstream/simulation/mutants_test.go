package simulation

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func mutants(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/mutants/*.patch")
	if err != nil || len(all) == 0 {
		t.Fatal("no mutants", err)
	}
	return all
}

// TestMutantsApply checks that the patches of `make judge` apply to the code as it is: what patch has to search for may
// be put elsewhere than was meant.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants(t) {
		in, err := os.Open(m)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "patch", "--dry-run", "--batch", "--fuzz=0", "-p1", "-d", "../../..")
		cmd.Stdin = in
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", m, err, out)
		}
		_ = in.Close()
	}
}

// TestMutantsAreJudged: docs/simulation.md has a row for each fault of `make judge`, which writes there what it counts.
// LIENSTREAM_REWRITE=1 writes the rows that are missing.
func TestMutantsAreJudged(t *testing.T) {
	const file, from, to = "../../../docs/simulation.md", "<!-- mutants -->\n", "<!-- /mutants -->\n"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(text), from)
	table, after, ends := strings.Cut(rest, to)
	if !begins || !ends {
		t.Fatalf("%s has no table of faults", file)
	}
	rows := map[string]string{}
	for row := range strings.Lines(table) {
		name, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
		rows[name] = row
	}
	var want strings.Builder
	want.WriteString("| fault put into the code | runs until it is found | what is found |\n|---|---|---|\n")
	for _, m := range mutants(t) {
		name := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(m), ".patch"), "-", " ")
		if rows[name] == "" {
			rows[name] = "| " + name + " | not judged yet | |\n"
		}
		want.WriteString(rows[name])
	}
	if table == want.String() {
		return
	}
	if os.Getenv("LIENSTREAM_REWRITE") == "" {
		t.Fatalf("%s has other faults than there are: LIENSTREAM_REWRITE=1 go test -run TestMutantsAreJudged ./cmd/lienstream/simulation", file)
	}
	if err := os.WriteFile(file, []byte(before+from+want.String()+to+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
