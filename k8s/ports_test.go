package k8s

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// portsFollow is the comment above a line that TestPortsFollowFromFlags writes.
const portsFollow = "# the program's ports, written by a test: CONTRIBUTING.md"

// TestPortsFollowFromFlags: the lines that list the services' ports are what the program has.
func TestPortsFollowFromFlags(t *testing.T) {
	p := readProgram(t)
	ports := p.services()
	delete(ports, "ops")
	names := slices.SortedFunc(maps.Keys(ports), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(ports[a]), len(ports[b])), cmp.Compare(ports[a], ports[b]))
	})
	list := func(format, between string) string {
		var all []string
		for _, name := range names {
			all = append(all, strings.NewReplacer("NAME", name, "PORT", ports[name]).Replace(format))
		}
		return strings.Join(all, between)
	}
	for file, lines := range map[string][]string{
		"serving.yaml": {
			"ports: [" + list("{name: NAME, containerPort: PORT}", ", ") + ", {name: ops, containerPort: " + p.port("ops-addr") + "}]",
			"ports: [" + list("{name: NAME, port: PORT, targetPort: NAME}", ", ") + "]",
		},
		"network.yaml":           {"- ports: [" + list("{protocol: TCP, port: NAME}", ", ") + "]"},
		"../docker/Dockerfile":   {"EXPOSE " + list("PORT", " ") + " " + p.port("query-addr") + " " + p.port("ops-addr")},
		"../docker/compose.yaml": {"ports: [" + list(`"127.0.0.1:PORT:PORT"`, ", ") + "]"},
	} {
		is := read(t, file)
		want := withPorts(t, file, is, lines)
		if is == want {
			continue
		}
		if os.Getenv("LIENSTREAM_REWRITE") == "" {
			t.Errorf("%s: its ports are not the program's: LIENSTREAM_REWRITE=1 go test ./k8s", file)
		} else if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// withPorts replaces the line below each comment.
func withPorts(t *testing.T, file, text string, lines []string) string {
	t.Helper()
	all := strings.Split(text, "\n")
	for i, line := range all[:len(all)-1] {
		indent, found := strings.CutSuffix(line, portsFollow)
		if !found || len(lines) == 0 {
			continue
		}
		all[i+1] = indent + lines[0]
		lines = lines[1:]
	}
	if len(lines) > 0 {
		t.Errorf("%s: no comment %q above %v", file, portsFollow, lines)
	}
	return strings.Join(all, "\n")
}
