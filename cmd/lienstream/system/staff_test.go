package system

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics/polltest"
)

// TestABugReportOfTheFirstMinutes sends one with the command that `up` prints, and answers it with those of staff.
func TestABugReportOfTheFirstMinutes(t *testing.T) {
	if _, err := os.Stat("../../../serving/clients/node_modules/@x402/fetch"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("serving/clients is not installed: npm ci there")
	}
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	textKeys := file("texts", "text-key-of-tests,-of-thirty-two-bytes\n")
	payments := address(t)
	p := start(t, "up", "up", "--data-dir="+dir, "--indexer-addr="+address(t), "--agent-addr="+address(t), "--valuation-addr="+address(t),
		"--support-addr="+address(t), "--notify-addr="+address(t), "--payment-chain-addr="+payments, "--query-addr="+address(t),
		"--ops-addr="+address(t), "--chain-addr="+address(t), "--block-time=50ms", "--support-text-keys-file="+textKeys)
	var pays, kafka []string
	polltest.Until(t, "the banner is there", func() bool {
		pays = regexp.MustCompile(`(?m)PAYER_KEY=.*$`).FindStringSubmatch(p.output())
		kafka = regexp.MustCompile(`a Kafka broker, (\S+)`).FindStringSubmatch(p.output())
		return pays != nil && kafka != nil
	})
	var paid struct {
		Status int
		Body   struct{ Ticket struct{ ID string } }
	}
	polltest.Within(t, time.Minute, func() error {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", pays[0])
		cmd.Dir = repository(t)
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &paid)
		}
		return err
	})
	if paid.Status != 201 {
		t.Fatalf("%s: %+v", pays[0], paid)
	}
	staff := func(verb string, args ...string) string {
		t.Helper()
		s := start(t, verb, append([]string{
			"support", verb, "--as=ada", "--as-key-file=" + file("ada", strings.Repeat("1", 64)),
			"--support-text-keys-file=" + textKeys, "--payment-rpc=http://" + payments, "--kafka=" + kafka[1],
		}, args...)...)
		<-s.done
		if s.err != nil {
			t.Fatalf("support %s: %v\n%s", verb, s.err, s.output())
		}
		return s.output()
	}
	ticket := paid.Body.Ticket.ID
	staff("reply", ticket, file("reply", "Thank you."))
	if shown := staff("show", ticket); !strings.Contains(shown, "Thank you.") || !strings.Contains(shown, "reporter@example.com") {
		t.Errorf("show: %s", shown)
	}
	staff("decide", ticket, "accepted")
	if list := staff("list"); !strings.Contains(list, ticket) || !strings.Contains(list, "ACCEPTED") || !strings.Contains(list, "OWED") {
		t.Errorf("list: %s", list)
	}
}
