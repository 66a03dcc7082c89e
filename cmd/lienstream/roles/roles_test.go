package roles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/peterbourgon/ff/v4"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/serving/agent"
	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/serving/indexer"
	"github.com/lienstream/lienstream/topics"
)

// command runs a command line on the machine and returns what it printed.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	env := System()
	env.Stdout, env.Stderr = &out, &out
	err := Run(t.Context(), env, args)
	return out.String(), err
}

func TestEveryFlagSaysWhereItsValueComesFrom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lienstream.yaml")
	if err := os.WriteFile(file, []byte("kafka-prefix: filed\nstandbys: 3\nsession-timeout: 7s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LIENSTREAM_STANDBYS", "2")
	t.Setenv("LIENSTREAM_SESSION_TIMEOUT", "8s")
	out, err := command(t, "config", "--config", file, "--session-timeout=9s", "--rpc=https://node.example/v3/key-of-mine,wss://u:pass@other.example",
		"--redis=redis://:password@cache.example:6379", "--facilitator=https://user:pass@pay.example/x?key=key-of-mine",
		"--telegram-url=https://telegram.example/bot:key-of-mine")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) > 2 {
			rows[fields[0]] = fields[1:]
		}
	}
	for flag, want := range map[string]string{
		"kafka-prefix":    "filed file",
		"standbys":        "2 variable LIENSTREAM_STANDBYS",
		"session-timeout": "9s flag --session-timeout",
		"chain-id":        "4663 default",
		"rpc":             "https://node.example/***,wss://other.example/*** flag --rpc",
		"redis":           "redis://cache.example:6379/*** flag --redis",
		"facilitator":     "https://pay.example/*** flag --facilitator",
		"telegram-url":    "https://telegram.example/*** flag --telegram-url",
		"kafka":           "- default",
		"agent-url":       "http://localhost:4300 default: agent-addr",
		"deployment":      "contracts/deployments/4663.json default: the chain ID",
	} {
		if got := strings.Join(rows[flag], " "); got != want {
			t.Errorf("%s: %s, want %s", flag, got, want)
		}
	}
	for _, secret := range []string{"key-of-mine", "pass", "password@"} {
		if strings.Contains(strings.ReplaceAll(out, "-password-file", ""), secret) {
			t.Errorf("shows %q", secret)
		}
	}
	if len(rows) != len(Listing())+1 {
		t.Errorf("%d rows for %d flags", len(rows)-1, len(Listing()))
	}
}

// TestDocumentsNameFlags: each flag that a document names is one.
func TestDocumentsNameFlags(t *testing.T) {
	known := []string{"as", "as-key-file", "tx", "grep", "describe", "members"} // of `lienstream support`, git and Kafka's own tools
	for _, f := range Listing() {
		known = append(known, f.Name)
	}
	files, err := filepath.Glob("../../../docs/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d documents, %v", len(files), err)
	}
	for _, file := range append(files, "../../../README.md", "../../../CONTRIBUTING.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)(?:^|[\s`+"`"+`(])--([a-z][a-z0-9-]+)(…?)`).FindAllStringSubmatch(string(text), -1) {
			if !slices.ContainsFunc(known, func(name string) bool {
				return name == m[1] || m[2] != "" && strings.HasPrefix(name, m[1])
			}) {
				t.Errorf("%s names --%s%s, which is no flag", filepath.Base(file), m[1], m[2])
			}
		}
	}
}

// TestErrorsNameTheirFlags: each line about a flag's value begins with the name of a flag, that one or one that it needs.
func TestErrorsNameTheirFlags(t *testing.T) {
	dir := t.TempDir()
	secret, deployment := filepath.Join(dir, "secret"), filepath.Join(dir, "deployment.json")
	var b strings.Builder
	if err := errors.Join(os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600), faultless(contracts.DefaultChainID).Write(&b), os.WriteFile(deployment, []byte(b.String()), 0o600)); err != nil {
		t.Fatal(err)
	}
	base := []string{"--check", "--kafka=localhost:9092", "--rpc=http://localhost:8545", "--cursor-secret-file=" + secret, "--query-token-file=" + secret, "--deployment=" + deployment}
	var names []string
	for _, f := range Listing() {
		names = append(names, f.Name)
	}
	for _, role := range []string{"up", "ingest", "processors", "serving"} {
		if _, err := command(t, append([]string{role}, base...)...); err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		for _, name := range names {
			values := []string{"-1"}
			if role == "up" {
				values = append(values, "x y", "http://%%")
			}
			for _, value := range values {
				_, err := command(t, slices.Concat([]string{role}, base, []string{"--" + name + "=" + value})...)
				if err == nil || name == "config" {
					continue
				}
				for line := range strings.Lines(err.Error()) {
					if of, _, _ := strings.Cut(line, ":"); !slices.Contains(names, of) {
						t.Errorf("%s --%s=%s: %s", role, name, value, line)
					}
				}
			}
		}
	}
}

// TestCheckSaysWhatCannotListen: what fails when a role starts fails its check.
func TestCheckSaysWhatCannotListen(t *testing.T) {
	for flag, want := range map[string]string{
		"--ops-addr=nonsense":             `ops-addr: "nonsense" is not host:port`,
		"--indexer-addr=:99999":           `indexer-addr: ":99999" is not host:port, with a port of at most 65535`,
		"--finality=never":                `finality: "never" is not tag or window`, // of the embedded chain too
		"--support-staff-file=roles.go":   "support-staff-file: ",
		"--support-staff-file=absent.txt": "support-staff-file: open absent.txt",
	} {
		if out, err := command(t, "up", "--check", flag); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q; %s", flag, err, want, out)
		}
	}
}

// What listens on this machine is reached there by the name of every machine for itself.
func TestLocal(t *testing.T) {
	for addr, want := range map[string]string{
		":4100": "http://localhost:4100", "0.0.0.0:4100": "http://localhost:4100", "[::]:4100": "http://localhost:4100",
		"10.0.0.5:4100": "http://10.0.0.5:4100", "localhost:4100": "http://localhost:4100", "127.0.0.1:0": "", "nowhere": "",
	} {
		if got := local(addr); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}

// TestEveryFlagIsDocumented: docs/flags.md is what the program has. LIENSTREAM_REWRITE=1 writes it.
func TestEveryFlagIsDocumented(t *testing.T) {
	const file = "../../../docs/flags.md"
	var b strings.Builder
	b.WriteString("# Flags\n\nEvery command accepts all of them. `--kafka-prefix` can also be set by the variable `LIENSTREAM_KAFKA_PREFIX`, or by\n" +
		"`kafka-prefix` in the YAML file of `--config`; `lienstream config` prints the effective values. The test of\n" +
		"`cmd/lienstream/roles` writes this page.\n\n| flag | default | |\n|---|---|---|\n")
	for _, f := range Listing() {
		value := ""
		if f.Default != "" {
			value = "`" + f.Default + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s |\n", f.Name, value, strings.ReplaceAll(f.Usage, "|", "\\|"))
	}
	if os.Getenv("LIENSTREAM_REWRITE") != "" {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != b.String() {
		t.Error("docs/flags.md is not what the program has: LIENSTREAM_REWRITE=1 go test ./cmd/lienstream/roles")
	}
}

// --help names what a flag's value is, not words of its text.
func TestHelpNamesTypesOfValues(t *testing.T) {
	var each func(c *ff.Command)
	each = func(c *ff.Command) {
		if c.Flags == nil {
			c.Flags = ff.NewFlagSet(c.Name) // its subcommands have flags
		}
		if err := c.Flags.WalkFlags(func(f ff.Flag) error {
			if p := f.GetPlaceholder(); strings.ContainsFunc(p, func(r rune) bool { return r < '0' || r > 'Z' }) {
				name, _ := f.GetLongName()
				t.Errorf("%s: --%s %s", c.Name, name, p)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		for _, sub := range c.Subcommands {
			each(sub)
		}
	}
	g := newProgram()
	flags := g.flags()
	each(g.commands(Environment{}, flags))
	for name, want := range map[string]string{"log-level": "STRING", "drain-delay": "DURATION", "standbys": "INT", "rpc": "LIST", "check": ""} {
		if f, _ := flags.set.GetFlag(name); f.GetPlaceholder() != want {
			t.Errorf("--%s %s, want %s", name, f.GetPlaceholder(), want)
		}
	}
}

// A service's flags, its fault and its name in --services reach a person without a line outside of its file.
func TestCheckNamesEveryFault(t *testing.T) {
	_, err := command(t, "serving", "--check", "--services=indexer,weather", "--indexer-addr=nowhere", "--redis=http://x", "--max-head-age=0s",
		"--kafka=here", "--trusted-proxies=everyone")
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{`"weather" is not one of indexer`, `"nowhere"`, "redis", "max-head-age", `"here" is not host:port`, `"everyone" is not a network`, "cursor-secret-file: required"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	_, err = command(t, "processors", "--check", "--applications=support,weather")
	for _, want := range []string{`applications: "weather" is not one of market, support, notifier`, "applications: market is required"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	_, err = command(t, "processors", "--check", "--smtp=mail:25", "--smtp-from=alerts@lien.example", "--notify-keys-file=nowhere")
	if want := "notify-public-url: required with --smtp"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not name %s", err, want)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("sixteen or more bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"up", "--check"}, {"chain", "--check"}, {"serving", "--check", "--kafka=kafka:9092", "--cursor-secret-file=" + secret}} {
		if _, err := command(t, args...); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	for _, role := range []string{"ingest", "processors", "serving"} {
		if _, err := command(t, role, "--check"); err == nil || !strings.Contains(err.Error(), "brokers: required") {
			t.Errorf("%s without Kafka: %v", role, err)
		}
	}
}

// What is wrong with one flag hides nothing that is wrong with another, and is said once.
// What settles payments is checked before anything starts: each fault names its flag, and no secret.
func TestCheckNamesWhatSettles(t *testing.T) {
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := file("key", strings.Repeat("7", 64))
	for _, c := range []struct{ args, want string }{
		{"--facilitator=pay.example/secret", "facilitator: URL: not an http or https URL"},
		{"--facilitator=ftp://pay.example/secret", "facilitator: URL: not an http or https URL"},
		{"--facilitator=https://:443/secret", "facilitator: URL: not an http or https URL"},
		{"--facilitator=https://pay.example/v2?apikey=/secret", "facilitator: URL: it has a query or a fragment"},
		{"--facilitator=https://pay.example/v2#/secret", "facilitator: URL: it has a query or a fragment"},
		{"--facilitator=https://pay.example/v2?", "facilitator: URL: it has a query or a fragment"},
		{"--facilitator=https://pay.example --facilitator-key-file=" + file("empty", " \n"), "facilitator-key-file: it is empty"},
		{"--facilitator=https://pay.example --facilitator-key-file=" + file("lines", "Bearer\nsecret"), "facilitator-key-file: has characters that an HTTP header cannot carry"},
		{"--facilitator=https://pay.example --facilitator-key-file=nowhere", "facilitator-key-file: "},
		{"--relayer-key-file=" + key + " --facilitator-key-file=" + key, "facilitator-key-file: it needs --facilitator"},
		{"--facilitator=https://pay.example --facilitator-timeout=0s", "facilitator: Timeout: 0s is not positive"},
		{"--relayer-key-file=nowhere", "relayer-key-file: "},
		{"--relayer-key-file=" + key + " --relayer-max-fee-per-gas=0", "relayer-max-fee-per-gas: 0 is not positive"},
		{"--relayer-key-file=" + file("short", "secret"), "relayer-key-file: not a 32-byte key in hex"},
		{"--relayer-key-file=" + key + " --payment-confirmations=0", "payment-confirmations: 0 is not in 1-100000"},
		{"--relayer-key-file=" + key + " --payment-confirmations=18446744073709551615", "payment-confirmations: 18446744073709551615 is not in 1-100000"},
		{"--relayer-key-file=" + key + " --float-daily-ceiling=-1", `float-daily-ceiling: "-1" is not a positive integer`},
		{"--relayer-key-file=" + key + " --float-daily-ceiling=1e6", `float-daily-ceiling: "1e6" is not a positive integer`},
		{"--relayer-key-file=" + key + " --support-public-url=nowhere", `support-public-url: "nowhere" is not an http or https URL`},
		{"--relayer-key-file=" + key + " --support-public-url=https://:443", `support-public-url: "https://:443" is not an http or https URL`},
		{"--relayer-key-file=" + key + " --support-public-url=https://support.example/?x=1", `support-public-url: "https://support.example/?x=1" has a query or a fragment`},
		{"--relayer-key-file=" + key + " --support-public-url=https://support.example/#x", `support-public-url: "https://support.example/#x" has a query or a fragment`},
		{"--relayer-key-file=" + key + " --payment-network=eip155:08453", `network: "eip155:08453" is not eip155:<chain ID>`},
	} {
		_, err := command(t, append([]string{"serving", "--check", "--services=support", "--payment-rpc=http://pay.example"}, strings.Fields(c.args)...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret\n") || strings.Contains(err.Error(), "/secret") {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// What staff mistype is refused before anything is asked, and says what is right.
func TestStaffMistypes(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"refund a b c --tx 0x1", "usage: lienstream support refund [--tx <transaction>] <ticket>"},
		{"list --as=", "--as: missing value"},
		{"refund", "usage: lienstream support refund [--tx <transaction>] <ticket>"},
		{"decide a", "usage: lienstream support decide <ticket> accepted|"},
	} {
		if _, err := command(t, append([]string{"support"}, strings.Fields(c.args)...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("support %s: %v, want %q", c.args, err, c.want)
		}
	}
	for text, want := range map[string]string{
		"accepted": "ACCEPTED false", "DUPLICATE": "DUPLICATE false", "rejected": "REJECTED false", "rejected-valid": "REJECTED true",
		"duplicate-valid": " false", "accepted-valid": " false", "-valid": " false", "pending": " false",
	} {
		verdict, valid, err := parseVerdict(text)
		if got := fmt.Sprint(verdict, " ", valid); got != want || (err == nil) != (verdict != "") {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
}

// Flags are taken before and behind the arguments of a command, and what is mistyped is said in its own words.
func TestFlagsAreTakenAnywhere(t *testing.T) {
	for args, want := range map[string]string{
		"topics tail ent.deal --kafka=127.0.0.1:1 --limit 2":     "topics tail --kafka=127.0.0.1:1 --limit 2 ent.deal",
		"--check up --standbys 2":                                "--check up --standbys 2",
		"topics tail --follow ent.deal":                          "topics tail --follow ent.deal",
		"support decide a --as ann accepted --kafka 127.0.0.1:1": "support decide --as ann --kafka 127.0.0.1:1 a accepted",
		"topics tail -- ent.deal --limit":                        "topics tail -- ent.deal --limit",
		"topics tail ent.deal --nonsense":                        "topics tail ent.deal --nonsense", // the real parser names it
	} {
		ordered, _ := flagsFirst(strings.Fields(args))
		if got := strings.Join(ordered, " "); got != want {
			t.Errorf("%s: %s, want %s", args, got, want)
		}
	}
	if _, err := command(t, "topics", "tail", "ent.deal", "--kafka=nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("tail with a flag behind the topic: %v", err)
	}
	for args, want := range map[string]string{
		"up --check --services=":            "--services: missing value",
		"up --check --data-dir=":            "--data-dir: missing value",
		"up --check --kafka-partitions=abc": `kafka-partitions: "abc": invalid syntax`,
	} {
		if _, err := command(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "strconv") {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
	t.Setenv("LIENSTREAM_BLOCK_TIME", "abc")
	if _, err := command(t, "up", "--check"); err == nil || strings.HasPrefix(err.Error(), "lienstream:") || !strings.Contains(err.Error(), "LIENSTREAM_BLOCK_TIME") {
		t.Errorf("a bad variable: %v", err)
	}
}

func TestCheckGoesOnWithoutADeployment(t *testing.T) {
	none := "--deployment=" + filepath.Join(t.TempDir(), "none.json")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("sixteen or more bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want []string // a part of each line
	}{
		{"ingest --kafka=a:1 --rpc=http://x --rpc-proof=bogus --finality=maybe --rpc-rate=-1", []string{"none.json", "bogus", "maybe", "rate"}},
		{"up --rpc=http://x --finality=maybe --agent-url=nowhere --standbys=-1", []string{"none.json", "maybe", "nowhere", "standbys"}},
		{"serving --services=agent,valuation --kafka=a:1 --rpc=http://x --agent-url=nowhere --valuation-addr=there --cursor-secret-file=" + secret, []string{"none.json", "nowhere", "there"}},
	} {
		_, err := command(t, append(strings.Fields(c.args), "--check", none)...)
		if err == nil {
			t.Errorf("%s: no fault", c.args)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: nothing of %s", c.args, want)
			}
		}
		if lines := strings.Split(err.Error(), "\n"); len(lines) != len(c.want) {
			t.Errorf("%s: %d lines, want %d:\n%v", c.args, len(lines), len(c.want), err)
		}
	}
}

func TestCommands(t *testing.T) {
	want := []string{"up", "chain", "ingest", "processors", "serving", "topics", "support", "notify", "status", "config", "version"}
	if got := Commands(); !slices.Equal(got, want) {
		t.Errorf("commands %v, want %v", got, want)
	}
	if out, err := command(t, "version"); err != nil || !strings.HasPrefix(out, "lienstream ") {
		t.Errorf("version: %q %v", out, err)
	}
	out, err := command(t, "notify", "keys")
	private, rest, _ := strings.Cut(out, "\n")
	if public, bad := sender.VAPIDPublic(private); err != nil || bad != nil || strings.TrimSpace(rest) != "public "+public {
		t.Errorf("notify keys: %v, %v: its public key is %q", err, bad, rest)
	}
	if _, err := command(t, "dance"); err == nil || !strings.Contains(err.Error(), `unknown command "dance"`) {
		t.Errorf("dance: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	env := System()
	env.Stdout, env.Stderr = new(bytes.Buffer), new(bytes.Buffer)
	if err := Run(ctx, env, []string{"serving", "stray"}); err == nil || !strings.Contains(err.Error(), `unexpected argument "stray"`) {
		t.Errorf("stray argument: %v", err)
	}
}

// Where one service names another of this process, it names where that listens.
func TestServicesFindEachOther(t *testing.T) {
	// configured are the page and the agent API of a command line.
	configured := func(args string) (indexer.Config, agent.Config, string) {
		t.Helper()
		g := newProgram()
		if err := g.flags().set.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		p := g.process(System(), g.roles[0].(*upRole))
		api := g.serving.services[2].(*agentService)
		page, err := g.serving.services[0].(*indexerService).config(p)
		a, agentErr := api.config(p)
		if err := errors.Join(err, agentErr); err != nil {
			t.Fatal(err)
		}
		return page, a, api.valuationURL
	}
	page, api, valuation := configured("--valuation-addr=127.0.0.1:5100 --agent-addr=:5300 --support-public-url=https://support.example")
	if page.AgentURL != "http://localhost:5300" || page.ValuationURL != "http://localhost:5100" {
		t.Errorf("the page links to %q and %q", page.AgentURL, page.ValuationURL)
	}
	if api.BaseURL != "http://localhost:5300" || api.SupportURL != "https://support.example" || valuation != "http://localhost:5100" {
		t.Errorf("the agent API says that it is at %q and support at %q, and asks for values at %q", api.BaseURL, api.SupportURL, valuation)
	}
	for listen, want := range map[string]string{
		"0.0.0.0:5300": "http://localhost:5300", "127.0.0.1:5300": "http://localhost:5300",
		"192.0.2.7:5300": "http://192.0.2.7:5300", "[2001:db8::7]:5300": "http://[2001:db8::7]:5300", // localhost is not there
		"127.0.0.1:0": "", // it knows its port once it listens
	} {
		if _, c, _ := configured("--agent-addr=" + listen); c.BaseURL != want {
			t.Errorf("the agent API at %s says that it is at %q", listen, c.BaseURL)
		}
	}
	if page, _, valuation := configured("--services=indexer"); page.AgentURL != "" || page.ValuationURL != "" || valuation != "" {
		t.Errorf("the page links to %q and %q, which do not run", page.AgentURL, page.ValuationURL)
	}
	if page, api, valuation := configured("--page-agent-url=https://a.example --page-valuation-url=https://v.example --valuation-url=http://v:1 --support-url=https://s.example"); page.AgentURL != "https://a.example" ||
		page.ValuationURL != "https://v.example" || valuation != "http://v:1" || api.SupportURL != "https://s.example" {
		t.Errorf("the page links to %q and %q, the agent API to %q and %q: flags say otherwise", page.AgentURL, page.ValuationURL, valuation, api.SupportURL)
	}
}

// Processors are read with the token alone, but on loopback, where `up` serves them.
func TestReadAPIHasATokenOrIsOnLoopback(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		name := filepath.Join(dir, "token"+text)
		if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	for _, c := range []struct {
		args []string
		says string // empty: nothing of it
	}{
		{nil, "no query token, but :42070 is reachable"},
		{[]string{"--query-addr=127.0.0.1:42070"}, ""},
		{[]string{"--query-token-file=" + file("0123456789abcdef")}, ""},
		{[]string{"--query-token-file=" + file("short")}, "shorter than 16 bytes"},
		{[]string{"--query-token-file=" + file("")}, "is empty"},
		{[]string{"--query-token-file=" + filepath.Join(dir, "none")}, "no such file"},
	} {
		_, err := command(t, append([]string{"processors", "--check", "--kafka=127.0.0.1:1", "--deployment=" + filepath.Join(dir, "none")}, c.args...)...)
		if err == nil {
			t.Fatal("a deployment that is not there is no fault") // so that there always is an error to look at
		}
		if text := err.Error(); c.says == "" && strings.Contains(text, "query-") || !strings.Contains(text, c.says) {
			t.Errorf("%v: %q, want %q", c.args, text, c.says)
		}
	}
	for addr, ok := range map[string]bool{":0": false, "127.0.0.1:0": true, "0.0.0.0:0": false} {
		_, err := command(t, "up", "--check", "--data-dir="+dir, "--query-addr="+addr) // without the flag it listens on loopback
		if refused := err != nil && strings.Contains(err.Error(), "query-addr"); refused == ok {
			t.Errorf("up at %s: %v", addr, err)
		}
	}
}

// Requests in flight get at most half of the time of a stop at any port: what they use is closed after them.
func TestDrainingLeavesTimeToStop(t *testing.T) {
	for name, c := range map[string]httpapi.Config{
		"ops": httpapi.DefaultConfig(":0"), "processors": newProcessorsRole().http, "indexer": newIndexerService().cfg.HTTP,
		"valuation": newValuationService().cfg.HTTP, "agent": newAgentService().cfg.HTTP, "support": newSupportService().cfg.HTTP, "notifier": newNotifierService().cfg.HTTP,
	} {
		if c.DrainTimeout > stopTimeout/2 {
			t.Errorf("%s drains for %s of %s", name, c.DrainTimeout, stopTimeout)
		}
	}
}

// What was opened last may use what was opened before it. An error of one keeps none open.
func TestClosesInReverseOrder(t *testing.T) {
	var closed []int
	p := &Process{}
	for i := range 3 {
		p.Closing(func() error { closed = append(closed, i); return fmt.Errorf("closing %d", i) })
	}
	if err := p.close(); err == nil || !slices.Equal(closed, []int{2, 1, 0}) {
		t.Errorf("closed %v: %v", closed, err)
	}
}

// The market's state stays where it was before there were other applications.
func TestEachApplicationHasItsOwnState(t *testing.T) {
	p := &Process{Settings: &Settings{}}
	p.DataDir = "data"
	for app, want := range map[string]string{
		topics.AppMarket: "data/state", topics.AppSupport: "data/state/support",
		topics.AppNotifier: "data/state/notifier", topics.AppFacts: "data/state/" + topics.AppFacts,
	} {
		if got := applicationDir(p, app); got != filepath.FromSlash(want) {
			t.Errorf("state of %s in %s, want %s", app, got, want)
		}
	}
}

// `lienstream status` is told which applications must have owners by the flags that processors run them by.
func TestApplicationsByFlags(t *testing.T) {
	market, support := topics.AppMarket, topics.AppSupport
	for _, c := range []struct {
		args string
		want []string
	}{
		{"", []string{market, support}},
		{"--applications=market", []string{market}},
		{"--notify-keys-file=keys", []string{market, support, topics.AppNotifier, topics.AppFacts}},
		{"--notify-keys-file=keys --applications=market,support", []string{market, support}},
	} {
		g := newProgram()
		if err := g.flags().set.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		if got := g.processors.applications(g.process(System())); !slices.Equal(got, c.want) {
			t.Errorf("%q: %v, want %v", c.args, got, c.want)
		}
	}
	if _, err := command(t, "status", "--applications=weather"); err == nil || !strings.Contains(err.Error(), `"weather" is not one of`) {
		t.Errorf("status of an unknown application: %v", err)
	}
}

// A role says what it cannot keep to, and what is more than it takes by itself is there to be used.
func TestMemory(t *testing.T) {
	for _, role := range newProgram().roles {
		least := role.Least(&Process{Settings: newSettings()})
		out, err := command(t, role.Name(), "--check", fmt.Sprintf("--memory=%dB", least-1))
		if want := fmt.Sprintf("memory: %dB is less than the %s that %s takes", least-1, &least, role.Name()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q; %s", role.Name(), err, want, out)
		}
		for up, servers := range map[bool]Servers{false: {}, true: {Brokers: []string{"k:9092"}}} {
			p := &Process{Settings: newSettings(), Servers: servers, up: up}
			var heaps []uint64
			for _, budget := range []memory.Budget{least, 1 << 30, 2 << 30} {
				p.memory = budget
				heaps = append(heaps, role.Memory(p))
			}
			if heaps[0] >= heaps[1] || heaps[1] >= heaps[2] || heaps[0] > uint64(least) || heaps[2] > 2<<30 {
				t.Errorf("%s: heaps of %d bytes in %s, 1 GiB and 2 GiB", role.Name(), heaps, &least)
			}
		}
	}
	if out, err := command(t, "processors", "--check", "--memory=much"); err == nil || !strings.Contains(err.Error()+out, "much") {
		t.Errorf("%v: %s", err, out)
	}
}

// Of a list in the YAML file every element counts. Of a flag that is given twice, as what a script appends, the last value does.
func TestAListOfTheFileIsWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lienstream.yaml")
	if err := os.WriteFile(file, []byte("rpc: [https://a.example, https://b.example]\nkafka:\n  - k1:9092\n  - k2:9092\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "config", "--config", file, "--trusted-proxies=10.0.0.0/8", "--trusted-proxies=192.168.0.0/16,172.16.0.0/12")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"https://a.example,https://b.example", "k1:9092,k2:9092", " 192.168.0.0/16,172.16.0.0/12"} {
		if !strings.Contains(out, want) {
			t.Errorf("lienstream config lacks %s", want)
		}
	}
}
