package apitest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Node runs a program of serving/clients, which is at dir, and returns what it prints. Where its packages are not
// installed the test is skipped, but not in CI.
func Node(t *testing.T, dir string, env []string, args ...string) []byte {
	t.Helper()
	out, err := Start(t, dir, env, "node", args...)()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Start starts a program that needs the packages of serving/clients, and returns what waits for it.
func Start(t *testing.T, dir string, env []string, program string, args ...string) (wait func() ([]byte, error)) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a program that is not ours")
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@modelcontextprotocol/sdk")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("the packages of serving/clients are not here: make deps")
	}
	command := exec.CommandContext(t.Context(), program, args...)
	var out, errs bytes.Buffer
	command.Dir, command.Env, command.Stdout, command.Stderr = dir, append(os.Environ(), env...), &out, &errs
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return func() ([]byte, error) {
		if err := command.Wait(); err != nil {
			return nil, fmt.Errorf("%s %q: %w\n%s\n%s", program, args, err, out.Bytes(), errs.Bytes())
		}
		return out.Bytes(), nil
	}
}
