package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/accounts"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// TestFirstMinutes does what a new user does: start it, ask it, stop it, start it again.
func TestFirstMinutes(t *testing.T) {
	dir, addr := t.TempDir(), address(t)
	valuation, notify, agent, support, ops := address(t), address(t), address(t), address(t), address(t)
	up := func() *process {
		return start(t, "up", "up", "--data-dir="+dir, "--indexer-addr="+addr, "--agent-addr="+agent, "--valuation-addr="+valuation,
			"--support-addr="+support, "--notify-addr="+notify, "--payment-chain-addr=127.0.0.1:0", "--query-addr="+address(t),
			"--ops-addr="+ops, "--chain-addr="+address(t), "--block-time=50ms")
	}
	a := newAPI(addr)
	services := []struct{ addr, path string }{
		{valuation, "/health"},
		{valuation, "/deals/1/valuation"},
		{valuation, "/openapi.json"},
		{notify, "/health"},
		{notify, "/notify/0x0000000000000000000000000000000000000001"},
		{notify, "/openapi.json"},
		{agent, "/health"},
		{agent, "/v1/capabilities"},
		{agent, "/v1/listings"},
		{agent, "/v1/deals/1"},
		{agent, "/.well-known/agent.json"},
		{agent, "/openapi.json"},
		{support, "/health"},
		{support, "/openapi.json"},
	}
	for run := range 2 {
		p := up()
		began := time.Now()
		polltest.Within(t, 20*time.Second, func() error {
			for _, path := range []string{"/health/indexer", "/listings?sort=cost&limit=2", "/deals/1"} {
				res, err := a.get(t.Context(), path)
				if err != nil {
					return err
				}
				if res.Status != http.StatusOK {
					return fmt.Errorf("GET %s: %d", path, res.Status)
				}
			}
			return nil
		})
		t.Logf("answered after %v", time.Since(began))
		for _, s := range services { // the first prices need half an hour of the chain's time
			service := newAPI(s.addr)
			polltest.Within(t, 20*time.Second, func() error {
				res, err := service.get(t.Context(), s.path)
				if err == nil && res.Status != http.StatusOK {
					err = fmt.Errorf("GET %s%s: %d %v", s.addr, s.path, res.Status, res.Body)
				}
				return err
			})
		}
		everyURL(t, agent, support)
		if out := p.output(); !strings.Contains(out, "starts from scratch: the embedded chain is new") {
			t.Fatalf("the banner does not say that it starts from scratch:\n%s", out)
		}
		if run == 1 { // an epoch of the chain's time later, and once its block is safe
			subscribe(t, notify)
			outbox(t, ops, "has opened")
			t.Logf("told of an epoch after %v", time.Since(began))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", "text/html")
			page, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(page.Body)
			_ = page.Body.Close()
			if err != nil || !strings.Contains(string(text), "/outbox\"") {
				t.Errorf("the page does not link to the outbox: %v", err)
			}
		}
		t.Logf("stopped within %v", p.interrupt(t))
	}
}

// everyURL asks for each URL that the agent API's discovery document names, and for each path of its first steps.
func everyURL(t *testing.T, agent, support string) {
	t.Helper()
	_, port, _ := net.SplitHostPort(agent)
	_, supportPort, _ := net.SplitHostPort(support)
	var found struct {
		BaseURL, OpenAPI, MCP, Support string
		Workflow                       []struct{ Do string }
	}
	ask := func(method, url, content string) []byte {
		t.Helper()
		var text []byte
		polltest.Within(t, 20*time.Second, func() error { // the limits are of all who ask
			req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(content))
			if err != nil {
				return err
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			text, err = io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusTooManyRequests {
				return fmt.Errorf("%s %s: %d", method, url, res.StatusCode)
			}
			if err != nil || res.StatusCode != http.StatusOK || len(text) == 0 {
				t.Errorf("%s %s: %d %s %v", method, url, res.StatusCode, text, err)
			}
			return nil
		})
		return text
	}
	text := ask(http.MethodGet, "http://"+agent+"/.well-known/agent.json", "")
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	if base := "http://localhost:" + port; found.BaseURL != base || found.Support != "http://localhost:"+supportPort {
		t.Errorf("the agent API says that it is at %s, and support at %q", found.BaseURL, found.Support)
	}
	named := regexp.MustCompile(`https?://[^"]+`).FindAllString(string(text), -1)
	if len(named) != 4 {
		t.Errorf("it names %v", named)
	}
	for _, url := range named {
		if url == found.MCP {
			ask(http.MethodPost, url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
		} else {
			ask(http.MethodGet, url, "")
		}
	}
	for _, step := range found.Workflow {
		if path, ok := strings.CutPrefix(step.Do, "GET "); ok && !strings.Contains(path, "{") {
			ask(http.MethodGet, found.BaseURL+path, "")
		}
	}
}

// subscribe subscribes a new wallet to epochs.
func subscribe(t *testing.T, notify string) {
	t.Helper()
	key, err := crypto.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	wallet := strings.ToLower(crypto.PubkeyToAddress(key.PublicKey).Hex())
	message := fmt.Sprintf("service notify %s email ann@example.com %d", wallet, time.Now().Unix())
	signature, err := crypto.Sign(accounts.TextHash([]byte(message)), key)
	if err != nil {
		t.Fatal(err)
	}
	signature[64] += 27
	body := fmt.Sprintf(`{"wallet":%q,"channel":"email","address":"ann@example.com","message":%q,"signature":%q,
		"prefs":{"t48":false,"t24":false,"t6":false,"t1":false,"expiry":false,"budget":false,"epoch":true}}`, wallet, message, hexutil.Encode(signature))
	res, err := http.Post("http://"+notify+"/notify", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		t.Fatalf("POST /notify: %d %s", res.StatusCode, text)
	}
}

// outbox waits for a mail in the sink.
func outbox(t *testing.T, ops, subject string) {
	t.Helper()
	polltest.Within(t, 2*time.Minute, func() error {
		res, err := http.Get("http://" + ops + "/outbox")
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err == nil && (!strings.Contains(string(text), subject) || !strings.Contains(string(text), "ann@example.com")) {
			err = errors.New("no mail in the outbox")
		}
		return err
	})
}

// TestRestart: the program goes on after a clean stop, starts over after a SIGKILL of the process with the embedded
// broker, and says which.
func TestRestart(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TimePerBlock: time.Hour})
	dir := t.TempDir()
	w.mine(t.Context(), t, 30)
	for _, run := range []struct {
		says string
		end  func(*process)
	}{
		{"starts from scratch: the embedded broker found no cleanly closed log", func(p *process) { p.interrupt(t) }},
		{"continues with the state in", func(p *process) { p.kill() }},
		{"starts from scratch: the embedded broker found no cleanly closed log", func(p *process) { p.interrupt(t) }},
	} {
		p, a := w.up(t, dir)
		stateEqualsChain(t.Context(), t, a, w.judge, 30*time.Second)
		if out := p.output(); !strings.Contains(out, run.says) {
			t.Fatalf("the banner does not say %q:\n%s", run.says, out)
		}
		run.end(p)
		w.mine(t.Context(), t, 10)
	}
}
