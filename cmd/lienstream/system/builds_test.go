package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// nextBuild is the program as a later version may be: its nodes write other messages to each other. That is one number in one
// file, which Go's -overlay replaces.
func nextBuild(t *testing.T) string {
	t.Helper()
	dir, file := t.TempDir(), filepath.Join(repository(t), "processors", "engine", "read", "wire.go")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	layout := regexp.MustCompile(`(?m)^const layout = \d+$`)
	if len(layout.FindAll(text, -1)) != 1 {
		t.Fatalf("%s does not say which layout messages have", file)
	}
	changed, overlay := filepath.Join(dir, "wire.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{changed: layout.ReplaceAll(text, []byte("const layout = 255")), overlay: replace} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "lienstream")
	if err := build(binary, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay); err != nil {
		t.Fatalf("build the next version: %v", err)
	}
	return binary
}

// TestTwoBuilds upgrades nodes one after another to a build whose messages have another layout, and goes back. Serving nodes of
// either answer as the chain says as long as processors of theirs hold everything. Else they say that they cannot, never
// something wrong, and are well again without a restart.
func TestTwoBuilds(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 4, TimePerBlock: 6 * time.Hour})
	w.onKafka(t)
	w.onRedis(t)
	w.mine(t.Context(), t, 60)
	f := newFleet(t, w)
	f.join(t, "ingest", "ingest")
	f.processors(t, "older", "--session-timeout=3s")
	f.serving(t)
	older := f.api
	f.whole(t)
	read := readOn(t, older, "/deals?limit=200", "/deals/7")

	f.build = nextBuild(t)
	f.processors(t, "newer", "--session-timeout=3s")
	f.serving(t)
	newer := f.api
	f.nodes["older"].interrupt(t)
	w.mine(t.Context(), t, 5)
	stateEqualsChain(t.Context(), t, newer, w.judge, time.Minute)
	unavailable(t, older)

	f.restart("older")
	f.nodes["newer"].interrupt(t)
	w.mine(t.Context(), t, 5)
	stateEqualsChain(t.Context(), t, older, w.judge, time.Minute)
	unavailable(t, newer)
	t.Logf("the older serving node did not answer for %v", read.stop(t, "two builds"))
	read.judge(t.Context(), t, w.judge)
}

// unavailable waits until a serving node says that no processors can answer.
func unavailable(t *testing.T, a *api) {
	t.Helper()
	polltest.Within(t, 30*time.Second, func() error {
		res, err := a.get(t.Context(), "/deals/7")
		fault, _ := res.Body["error"].(object)
		if err == nil && (res.Status != http.StatusServiceUnavailable || fault["code"] != "UPSTREAM_UNAVAILABLE") {
			err = fmt.Errorf("%d %v", res.Status, res.Body)
		}
		return err
	})
}
