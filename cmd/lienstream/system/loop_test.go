package system

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
)

// cluster is every role as a process of its own on the real servers.
type cluster struct {
	w       *world
	args    map[string][]string // by role
	running map[string]*process
	api     *api
	dir     string // of the processors' state
	query   string // address of the processors' read API
}

func newCluster(t *testing.T, w *world) *cluster {
	t.Helper()
	run(t, append([]string{"topics", "apply"}, w.servers...)...)
	c := &cluster{w: w, running: map[string]*process{}, dir: t.TempDir(), query: address(t)}
	serving := address(t)
	c.api = newAPI(serving)
	c.args = map[string][]string{
		"ingest":     {"--ops-addr=" + address(t)},
		"processors": {"--ops-addr=" + address(t), "--data-dir=" + c.dir, "--instance=a", "--query-addr=" + c.query, "--advertise=" + c.query},
		"serving":    {"--ops-addr=" + address(t), "--indexer-addr=" + serving, "--agent-addr=127.0.0.1:0", "--valuation-addr=127.0.0.1:0"},
	}
	for role := range c.args {
		c.start(t, role)
	}
	return c
}

func (c *cluster) start(t *testing.T, role string) {
	t.Helper()
	args := append([]string{role}, c.args[role]...)
	args = append(args, c.w.chain...)
	c.running[role] = start(t, role, append(args, c.w.servers...)...)
}

// run runs a command of the binary and returns its output.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := try(t, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

// try is run for a command that may fail.
func try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	p := start(t, strings.Join(args[:2], " "), args...)
	<-p.done
	return p.output(), p.err
}

// TestCrashAnywhere kills ingester, processors and serving by SIGKILL while blocks come and go, loses the
// state's directory once, and then compares state and topics with the chain.
func TestCrashAnywhere(t *testing.T) {
	w := newWorld(t, "devchain", "real", devchain.ScenarioConfig{
		Seed: seed(t), TxsPerBlock: 8, TimePerBlock: 6 * time.Hour, Reorgs: true, ReorgEvery: 10, MaxReorgDepth: 20,
	})
	random := rand.New(rand.NewPCG(seed(t), 1))
	w.mine(t.Context(), t, 160) // more than may be reverted, so that some of it is final
	c := newCluster(t, w)
	stateEqualsChain(t.Context(), t, c.api, w.judge, time.Minute)
	roles := []string{"ingest", "processors", "processors", "serving"}
	for range kills(t) {
		role := roles[random.IntN(len(roles))]
		w.mine(t.Context(), t, 1+random.IntN(12))
		c.running[role].kill()
		w.mine(t.Context(), t, random.IntN(4))
		c.start(t, role)
	}
	stateEqualsChain(t.Context(), t, c.api, w.judge, time.Minute)
	wholeIndexerEqualsChain(t, w, c.api)
	topicsEqualChain(t, w)

	c.running["processors"].kill()
	if err := os.RemoveAll(filepath.Join(c.dir, "state")); err != nil {
		t.Fatal(err)
	}
	c.start(t, "processors")
	stateEqualsChain(t.Context(), t, c.api, w.judge, time.Minute)
	w.mine(t.Context(), t, 20)
	stateEqualsChain(t.Context(), t, c.api, w.judge, time.Minute)
	wholeIndexerEqualsChain(t, w, c.api)
	topicsEqualChain(t, w)
	for _, role := range []string{"serving", "processors", "ingest"} {
		c.running[role].interrupt(t)
	}
}
