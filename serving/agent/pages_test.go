package agent

import (
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"go.yaml.in/yaml/v3"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// TestPagesAreTrue: they name every code and every path of an action, and every link of theirs is there.
func TestPagesAreTrue(t *testing.T) {
	w := newWorld(t, newNode(t, 8), 8, 0)
	for path, page := range map[string]string{"/llms.txt": overview, "/skill.md": skill, "/quickstart.md": quickstart} {
		if res := w.Get(t, path); res.Status != http.StatusOK || string(res.Body) != page {
			t.Errorf("%s answers %d", path, res.Status)
		}
	}
	links := strings.Split(overview, "](")[1:]
	for _, link := range links {
		path, _, _ := strings.Cut(link, ")")
		want := http.StatusOK
		if path == mcpRoute {
			want = http.StatusMethodNotAllowed
		}
		if res := w.Get(t, path); res.Status != want {
			t.Errorf("%s answers %d", path, res.Status)
		}
	}
	if len(links) < 5 {
		t.Errorf("llms.txt has %d links", len(links))
	}
	for _, code := range []string{
		"INVALID_INPUT", chainMismatch.Name, dealNotFound.Name, "NOT_FOUND", termsChanged.Name, spendLimit.Name, notFundable.Name, graceNotOver.Name,
		simulationFailed.Name, insufficientBalance.Name, nothingToWithdraw.Name, "RATE_LIMITED", staleChain.Name, "STALE_INDEXER", staleValuation.Name,
		deploymentMismatch.Name, "UPSTREAM_UNAVAILABLE", "BODY_TOO_LARGE",
	} {
		if !strings.Contains(skill, "`"+code+"`") {
			t.Errorf("the skill does not say what to do about %s", code)
		}
	}
	var described struct {
		Components struct {
			Schemas struct {
				Warning struct {
					Properties struct{ Code struct{ Enum []string } }
				} `yaml:"Warning"`
			}
		}
	}
	if err := yaml.Unmarshal(description, &described); err != nil {
		t.Fatal(err)
	}
	warnings := described.Components.Schemas.Warning.Properties.Code.Enum
	if len(warnings) < 8 {
		t.Errorf("there are %d warnings", len(warnings))
	}
	for _, code := range warnings {
		if !strings.Contains(skill, "`"+code+"`") {
			t.Errorf("the skill does not say what the warning %s means", code)
		}
	}
	for _, r := range w.agent.routes() {
		if strings.HasPrefix(r.Path, "/v1/") && !strings.Contains(skill, r.Path) {
			t.Errorf("the skill does not name %s", r.Path)
		}
	}
}

// program is a program of the quickstart, as it stands there.
func program(t *testing.T, language string) string {
	t.Helper()
	_, after, _ := strings.Cut(quickstart, "```"+language+"\n")
	text, _, found := strings.Cut(after, "```\n")
	if !found {
		t.Fatalf("the quickstart has no program in %s", language)
	}
	return text
}

func TestQuickstartWithCurl(t *testing.T) {
	w, deal, fund := listed(t)
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	server := httptest.NewServer(w.agent)
	defer server.Close()
	command := exec.CommandContext(t.Context(), "bash", "-c", program(t, "sh"))
	command.Env = append(os.Environ(), "BASE="+server.URL, "WALLET="+fund["wallet"].(string))
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{deal.TermsHash, "approve(address,uint256)", `"expiresAt"`, `"serverSigns": false`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("it does not print %s: %s", want, out)
		}
	}
}

// TestQuickstartOverAnEmptyPage: the cheapest listing has a term that is not served, so the first page is empty.
func TestQuickstartOverAnEmptyPage(t *testing.T) {
	w, deal, fund := listed(t)
	if _, err := exec.LookPath("jq"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	w.call(w.actors[0], addressOf(deal.Token), "USDG", "approve", w.dep.DealVault, new(big.Int).Lsh(big.NewInt(1), 100))
	w.sent(w.prepared(body{
		"action": "list", "chainId": 4663, "wallet": w.actors[0].Hex(), "token": deal.Token, "amount": deal.AmountOrTokenID, "cap": "1000001",
		"term": contracts.LongTerm, "listingExpiry": 0, "minPrice": "1000000",
	}))
	w.sync()
	served := terms
	terms = []uint32{contracts.ShortTerm, contracts.ShortTerm}
	t.Cleanup(func() { terms = served })
	if p := get[page[IndexedDeal]](w, "/v1/listings?sort=cost&limit=1"); len(p.Items) != 0 || string(p.NextCursor) == "null" {
		t.Fatalf("the first page: %+v", p)
	}
	server := httptest.NewServer(w.agent)
	defer server.Close()
	command := exec.CommandContext(t.Context(), "bash", "-c", program(t, "sh"))
	command.Env = append(os.Environ(), "BASE="+server.URL, "WALLET="+fund["wallet"].(string))
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), deal.TermsHash) {
		t.Errorf("it does not find the deal on the next page: %v: %s", err, out)
	}
}

const clients = "../clients"

// compiled is the program in TypeScript, compiled against the types of our description; its path is from clients.
func compiled(t *testing.T) string {
	t.Helper()
	types := apitest.Node(t, clients, nil, "node_modules/openapi-typescript/bin/cli.js", "../agent/openapi.yaml")
	dir, err := os.MkdirTemp(clients+"/node_modules", ".quickstart-") //nolint:usetesting // viem is found from there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for name, text := range map[string]string{"agent-api.ts": string(types), "quickstart.ts": program(t, "ts"), "package.json": `{"type":"module"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at, err := filepath.Rel(clients, dir)
	if err != nil {
		t.Fatal(err)
	}
	apitest.Node(t, clients, nil, "node_modules/typescript/lib/tsc.js", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", filepath.Join(at, "quickstart.ts"))
	return filepath.Join(at, "quickstart.js")
}

// TestQuickstartHoldsThePreparationToItsOwn: the program signs nothing but what it would have made itself.
func TestQuickstartHoldsThePreparationToItsOwn(t *testing.T) {
	w, deal, _ := listed(t)
	lender := w.actors[1]
	at := compiled(t)
	for name, altered := range map[string]func(p *Prepared){
		"calldata":    func(p *Prepared) { p.Transaction.Data = p.Transaction.Data[:len(p.Transaction.Data)-2] + "ff" },
		"destination": func(p *Prepared) { p.Transaction.To = lower(w.dep.AssetRegistry) },
		"value":       func(p *Prepared) { p.Transaction.Value = "1" },
	} {
		server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path != prepareRoute {
				w.agent.ServeHTTP(rw, r)
				return
			}
			said := newRecorder()
			w.agent.ServeHTTP(said, r)
			var p Prepared
			if err := json.Unmarshal(said.body, &p); err != nil || said.status != http.StatusOK {
				t.Errorf("%d %s", said.status, said.body)
			}
			altered(&p)
			_ = json.NewEncoder(rw).Encode(p)
		}))
		defer server.Close()
		nonce, err := w.node.Client().NonceAt(t.Context(), lender, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = apitest.Start(t, clients, []string{
			"BASE=" + server.URL, "RPC=" + w.node.HTTP(), "MAX_PRICE=" + deal.MinPrice, "PRIVATE_KEY=" + hexutil.Encode(crypto.FromECDSA(w.keys[lender])),
		}, "node", at)()
		if err == nil || !strings.Contains(err.Error(), "it is another transaction") {
			t.Errorf("of another %s it ends with %v", name, err)
		}
		if now, err := w.node.Client().PendingNonceAt(t.Context(), lender); err != nil || now != nonce {
			t.Errorf("of another %s it sent %d transactions, %v", name, now-nonce, err)
		}
	}
}

// TestQuickstartInTypeScript lets the program fund a deal while blocks are mined.
func TestQuickstartInTypeScript(t *testing.T) {
	w, deal, fund := listed(t)
	server := httptest.NewServer(w.agent)
	defer server.Close()
	lender := w.actors[1]
	wait := apitest.Start(t, clients, []string{
		"BASE=" + server.URL, "RPC=" + w.node.HTTP(), "MAX_PRICE=" + deal.MinPrice, "PRIVATE_KEY=" + hexutil.Encode(crypto.FromECDSA(w.keys[lender])),
	}, "node", compiled(t))
	type outcome struct {
		out []byte
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		out, err := wait()
		done <- outcome{out, err}
	}()
	blocks := time.NewTicker(100 * time.Millisecond)
	defer blocks.Stop()
	for {
		select {
		case <-blocks.C:
			if _, err := w.node.Mine(t.Context(), w.head().Timestamp+1, nil); err != nil {
				t.Fatal(err)
			}
			w.sync()
			continue
		case o := <-done:
			if o.err != nil {
				t.Fatal(o.err)
			}
			var result struct{ Deal, Price string }
			if err := json.Unmarshal(o.out, &result); err != nil || result.Deal != fund["dealId"] || result.Price != deal.MinPrice {
				t.Errorf("it ends with %s (%v)", o.out, err)
			}
		}
		break
	}
	if d := get[DirectDeal](w, "/v1/deals/1"); d.State != "FUNDED" || *d.Lender != lower(lender) {
		t.Errorf("the deal is %s", d.State)
	}
}
