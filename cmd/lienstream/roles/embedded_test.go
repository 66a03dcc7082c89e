package roles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/prometheus/client_golang/prometheus"
)

// starting is a process of `up` with everything embedded that uses a data folder.
func starting(t *testing.T, dir string) (*Process, *chainRole) {
	t.Helper()
	g := newProgram()
	if err := g.flags().set.Parse([]string{"--data-dir=" + dir, "--chain-addr=127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	up := g.roles[0].(*upRole)
	p := g.process(System(), up)
	p.Reg, p.Group = prometheus.NewRegistry(), &errgroup.Group{}
	return p, up.chain
}

// The state of a real chain in the data folder outlives a run with the embedded one, whose own ends with it. Meanwhile no
// other run uses the folder, or deletes anything there.
func TestEmbeddedChainLeavesWhatIsNotItsOwn(t *testing.T) {
	dir := t.TempDir()
	t.Chdir("../../..") // the contracts are there
	mark := func(name string) string {
		file := filepath.Join(dir, name, "mark")
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	is := func(file string, want bool) {
		t.Helper()
		if _, err := os.Stat(file); (err == nil) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
	real, crashed := mark("state"), mark("state-scratch")
	p, chain := starting(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	e, err := embed(ctx, p, chain)
	if err != nil {
		t.Fatal(err)
	}
	if e.servers.SMTP == "" || p.notify.smtp != "" || p.notify.from == "" || !p.notify.smtpPlain {
		t.Errorf("the mail sink is at %q; of flags: smtp %q, smtp-from %q, smtp-plain %v", e.servers.SMTP, p.notify.smtp, p.notify.from, p.notify.smtpPlain)
	}
	is(real, true)
	is(crashed, false)
	own, deployment := mark("state-scratch"), filepath.Join(dir, "deployment.json")
	is(deployment, true)
	before, err := os.ReadFile(deployment)
	if err != nil {
		t.Fatal(err)
	}
	second, other := starting(t, dir)
	if _, err := embed(ctx, second, other); err == nil || !strings.Contains(err.Error(), "data-dir: "+dir+" is in use") {
		t.Errorf("a second run in the folder: %v", err)
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
	is(own, true)
	if after, err := os.ReadFile(deployment); err != nil || string(after) != string(before) {
		t.Errorf("the second run wrote the deployment: %v", err)
	}
	cancel()
	_ = p.Group.Wait() // it was told to stop
	if err := p.close(); err != nil {
		t.Error(err)
	}
	is(real, true)
	for _, file := range []string{filepath.Dir(own), deployment} {
		is(file, false)
	}
}

// The state that processors derived from other brokers' topics outlives an `up` whose embedded broker would be new.
func TestStateOfOtherBrokersIsLeft(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	if err := os.MkdirAll(filepath.Join(state, "0"), 0o750); err != nil {
		t.Fatal(err)
	}
	start := func() error {
		p, chain := starting(t, dir)
		p.endpoints, p.Servers.RPC, p.Servers.Redis = []string{"http://localhost:1"}, []string{"http://localhost:1"}, "redis://localhost:1"
		_, err := embed(t.Context(), p, chain)
		return errors.Join(err, p.close())
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), state+" is the state of topics on other brokers") {
		t.Errorf("a new broker beside the state: %v", err)
	}
	if _, err := os.Stat(filepath.Join(state, "0")); err != nil {
		t.Error(err)
	}
	if err := os.Rename(state, state+".mine"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // its own
		if err := start(); err != nil {
			t.Error(err)
		}
		if err := os.MkdirAll(filepath.Join(state, "0"), 0o750); err != nil {
			t.Fatal(err)
		}
	}
}
