package roles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inForce is what `lienstream config` prints of each flag, without repeated blanks.
func inForce(t *testing.T, args ...string) map[string]string {
	t.Helper()
	out, err := command(t, append([]string{"config"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(line, " ")
		rows[name] = strings.Join(strings.Fields(rest), " ")
	}
	return rows
}

// TestConfigShowsWhatIsInForce: a default that follows from the machine, the role or another flag is shown as what it is,
// and what somebody set as it was set.
func TestConfigShowsWhatIsInForce(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		want map[string]string
	}{
		{"", map[string]string{
			"instance": host + " default: the host name", "advertise": host + ":42070 default: query-addr", "query-addr": ":42070 default",
			"applications": "market,support default: all that are configured", "services": "indexer default: all that are configured",
			"log-level": "info default: auto", "log-format": "json default: auto", "smtp": "- default", "valuation-max-gap": "1m0s default",
		}},
		{"--instance=n1 --query-addr=127.0.0.1:1 --memory=512MiB --applications=market --log-level=debug --deployment=d.json --rpc=http://n", map[string]string{
			"instance": "n1 flag --instance", "advertise": "127.0.0.1:1 default: query-addr", "memory": "512MiB flag --memory", "log-level": "debug flag --log-level",
			"applications": "market flag --applications", "services": "indexer,valuation,agent default: all that are configured",
			"valuation-url": "http://localhost:4100 default: the service in this process", "support-url": "- default", "deployment": "d.json flag --deployment",
		}},
		{"up --data-dir=d", map[string]string{
			"query-addr": "127.0.0.1:42070 default: only this process reads there, without --query-token-file", "advertise": "127.0.0.1:42070 default: query-addr",
			"applications": "market,support,notifier default: all that are configured", "services": "indexer,valuation,agent,support,notifier default: all that are configured",
			"rpc": "embedded default: `up` starts it", "kafka": "embedded default: `up` starts it", "redis": "embedded default: `up` starts it",
			"payment-rpc": "embedded default: `up` starts it", "payment-confirmations": "3 default: the embedded payment chain",
			"smtp": "embedded default: `up` keeps the emails of an embedded chain", "smtp-from": "alerts@lienstream.localhost default: `up` starts it",
			"app-url": "http://localhost:42069 default: the service in this process", "valuation-max-gap": "0s default: the embedded chain's clock runs ahead",
			"agent-max-lag": "0s default: the embedded chain's clock runs ahead", "deployment": "d/deployment.json default: the embedded chain writes it",
		}},
		{"up --agent-max-lag=7s --agent-max-valuation=8s --valuation-max-age=5s --valuation-max-gap=9s --payment-confirmations=5 --payment-to=0x0000000000000000000000000000000000000001 --kafka=k:1 --kafka-prefix=mine --smtp-from=a@b.example", map[string]string{
			"agent-max-lag": "7s flag --agent-max-lag", "agent-max-valuation": "8s flag --agent-max-valuation", "valuation-max-age": "5s flag --valuation-max-age",
			"valuation-max-gap": "9s flag --valuation-max-gap", "payment-confirmations": "5 flag --payment-confirmations",
			"payment-to": "0x0000000000000000000000000000000000000001 flag --payment-to", "smtp-from": "a@b.example flag --smtp-from",
			"kafka-prefix": "mine-<time of the start> flag --kafka-prefix: the embedded chain is new at each start", "kafka": "k:1 flag --kafka",
		}},
	} {
		rows := inForce(t, strings.Fields(c.args)...)
		for flag, want := range c.want {
			if rows[flag] != want {
				t.Errorf("config %s: %s is %s, want %s", c.args, flag, rows[flag], want)
			}
		}
	}
	if _, err := command(t, "config", "down"); err == nil || !strings.Contains(err.Error(), `unexpected argument "down"`) {
		t.Errorf("config down: %v", err)
	}
}

// TestUpObeysFlags: what is printed is what the services and the read API get.
func TestUpObeysFlags(t *testing.T) {
	g := newProgram()
	if err := g.flags().set.Parse(strings.Fields("--agent-max-lag=7s --valuation-max-gap=9s --payment-confirmations=5 --query-addr=127.0.0.1:0")); err != nil {
		t.Fatal(err)
	}
	up := g.roles[0].(*upRole)
	p := g.process(System(), up)
	if err := up.Check(p); err != nil {
		t.Fatal(err)
	}
	services := g.serving.services
	agent, err := services[2].(*agentService).config(p)
	if err != nil || agent.MaxLag.String() != "7s" || agent.MaxValuation != 0 {
		t.Errorf("the agent API: lag %s, valuation %s, %v", agent.MaxLag, agent.MaxValuation, err)
	}
	valuation, err := services[1].(*valuationService).config(p)
	if err != nil || valuation.MaxGap.String() != "9s" || valuation.MaxAge != 0 {
		t.Errorf("the valuation service: gap %s, age %s, %v", valuation.MaxGap, valuation.MaxAge, err)
	}
	support, err := services[3].(*supportService).config(p)
	if err != nil || support.Confirmations != 5 || support.Payment.PayTo == "" {
		t.Errorf("the support service: %d confirmations, paid to %q, %v", support.Confirmations, support.Payment.PayTo, err)
	}
	if g.processors.http.Listen != "127.0.0.1:0" || g.processors.cfg.Addr != "127.0.0.1:0" {
		t.Errorf("the read API listens at %s, and is announced at %s", g.processors.http.Listen, g.processors.cfg.Addr)
	}
}

// TestUpRefusesWhatNoEmbeddedServerObeys: a flag that an embedded server cannot obey is refused by its name, and obeyed or
// left to the servers where those are named.
func TestUpRefusesWhatNoEmbeddedServerObeys(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"--query-addr=:42070":                          "query-addr: no query token, but :42070 is reachable",
		"--deployment=d.json":                          "deployment: the embedded chain",
		"--smtp-user=ada":                              "smtp-user: the emails of an embedded chain are not sent",
		"--smtp-password-file=" + secret:               "smtp-password-file: the emails",
		"--smtp-plain=false":                           "smtp-plain: the emails",
		"--smtp-from=nowhere --services=indexer":       "smtp-from: ",
		"--kafka-tls":                                  "kafka-tls: the embedded broker",
		"--kafka-user=ada":                             "kafka-user: the embedded broker",
		"--payment-network=eip155:1":                   "payment-network: the embedded payment chain",
		"--payment-token-name=Token":                   "payment-token-name: the embedded payment chain",
		"--query-addr=:1 --query-token-file=" + secret: "",
		"--smtp-plain --smtp-from=a@b.example":         "",
		"--kafka-tls=false":                            "",
		"":                                             "",
	} {
		_, err := command(t, append([]string{"up", "--check", "--data-dir=" + dir}, strings.Fields(flag)...)...)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("up %s: %v, want %q", flag, err, want)
		}
	}
}
