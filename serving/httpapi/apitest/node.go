package apitest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Node runs a program of serving/clients, which is at dir, and returns what it prints. Where its packages are not
// installed the test is skipped, but not in CI.
func Node(t *testing.T, dir string, env []string, args ...string) []byte {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "node_modules/@modelcontextprotocol/sdk")); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("the packages of serving/clients are not here: make deps")
	}
	command := exec.CommandContext(t.Context(), "node", args...)
	var out, errs bytes.Buffer
	command.Dir, command.Env, command.Stdout, command.Stderr = dir, append(os.Environ(), env...), &out, &errs
	if err := command.Run(); err != nil {
		t.Fatalf("node %q: %v\n%s\n%s", args, err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes()
}
