package valuation

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"go.yaml.in/yaml/v3"

	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

func TestDescriptionIsOpenAPI(t *testing.T) {
	var parsed map[string]any
	if err := yaml.Unmarshal(description, &parsed); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(parsed)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := libopenapi.NewDocument(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(doc)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if ok, faults := v.ValidateDocument(); !ok {
		t.Error(faults)
	}
	served := newService(t)
	for path := range parsed["paths"].(map[string]any) {
		if !slices.ContainsFunc(served.routes(), func(r httpapiRoute) bool { return r.Path == path }) && !strings.HasPrefix(path, "/openapi") && !strings.HasPrefix(path, "/docs") {
			t.Errorf("%s is described and not served", path)
		}
	}
	for _, r := range served.routes() {
		if parsed["paths"].(map[string]any)[r.Path] == nil {
			t.Errorf("%s is served and not described", r.Path)
		}
	}
}

// TestEveryAnswerHasAnExample: each answer in JSON but the description itself has one, which is as it is described.
func TestEveryAnswerHasAnExample(t *testing.T) {
	doc, err := libopenapi.NewDocument(description)
	if err != nil {
		t.Fatal(err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	v := schema_validation.NewSchemaValidator()
	examples := 0
	for path, item := range model.Model.Paths.PathItems.FromOldest() {
		for method, operation := range item.GetOperations().FromOldest() {
			for status, answer := range operation.Responses.Codes.FromOldest() {
				if answer.Content == nil { // 204 and 304
					continue
				}
				media := answer.Content.GetOrZero("application/json")
				if media == nil || path == "/openapi.json" && status == "200" {
					continue
				}
				var example any
				if media.Example == nil || media.Example.Decode(&example) != nil {
					t.Errorf("%s %s: %s has no example", method, path, status)
				} else if ok, faults := v.ValidateSchemaObject(media.Schema.Schema(), example); !ok {
					t.Errorf("%s %s: the example of %s: %v", method, path, status, faults)
				}
				examples++
			}
		}
	}
	if examples < 50 {
		t.Errorf("%d answers are described", examples)
	}
}

// TestTheExampleOfAValuation: a reader of the description sees what the shocks do, without a chain.
func TestTheExampleOfAValuation(t *testing.T) {
	var parsed struct {
		Paths map[string]struct {
			Get struct {
				Responses map[string]struct {
					Content map[string]struct {
						Example struct {
							Scenarios map[string]map[string]string `yaml:"scenarios"`
						} `yaml:"example"`
					} `yaml:"content"`
				} `yaml:"responses"`
			} `yaml:"get"`
		} `yaml:"paths"`
	}
	if err := yaml.Unmarshal(description, &parsed); err != nil {
		t.Fatal(err)
	}
	said := parsed.Paths["/deals/{id}/valuation"].Get.Responses["200"].Content["application/json"].Example.Scenarios
	number := func(scenario, field string) float64 {
		n, err := strconv.ParseFloat(said[scenario][field], 64)
		if err != nil {
			t.Fatal(scenario, field, err)
		}
		return n
	}
	for scenario, left := range map[string]float64{"now": 1, "down20": 0.8, "down50": 0.5, "down80": 0.2} {
		for _, field := range []string{"priceUSDG", "valueUSDG"} {
			if got, want := number(scenario, field), left*number("now", field); math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%s of %s is %g, want %g", field, scenario, got, want)
			}
		}
		if gets := min(number("atCap", "valueUSDG"), number(scenario, "valueUSDG")); number(scenario, "lenderGets") != gets {
			t.Errorf("the lender gets %s at %s, want %g", said[scenario]["lenderGets"], scenario, gets)
		}
	}
}

// The wrong values of every parameter. Each is a 400 that names it.
func TestWrongParameters(t *testing.T) {
	w := newWorld(t)
	c := apitest.NewClient(t, w.service, description)
	const word = "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"
	numbers := []string{
		"", "0", "-1", "+1", "1.0", "1e3", "0x1", "01", strings.Repeat("9", 79), strings.Repeat("9", 39), "1" + strings.Repeat("0", 77), "null",
		"115792089237316195423570985008687907853269984665640564039457584007913129639935", // 2^256 - 1
		"115792089237316195423570985008687907853269984665640564039457584007913129639936",
	}
	ticks := []string{"", "887273", "-887273", "1.0", "01", "+60", "x", "61", "99999999999999999999"}
	slippages := []string{"", "-1", "5001", "0.5", "+1", "x"}
	tokens := []string{"", "eth", "USDG", word + "0", word[:20], "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", word}
	pool := w.dep.PoolID.Hex()
	good := map[string]string{
		"eth": "1000000000000000", "usdg": "1000000", "to": "ETH", "slippageBps": "50", "pool": pool, "term": "604800",
		"amount": "1000000000000000000", "tickLower": "-887220", "tickUpper": "887220", "route": "match", "payAsset": "ETH",
	}
	for _, path := range []struct {
		path  string
		names map[string][]string
	}{
		{"/quote/entry", map[string][]string{"eth": numbers}},
		{"/quote/payout", map[string][]string{"usdg": numbers, "to": append(tokens, w.dep.USDG.Hex()), "slippageBps": slippages}},
		{"/range/suggest", map[string][]string{"pool": {"", "0x", "0xzz", pool[:64], pool + "0"}, "term": {"", "0", "-1", "1.5", "31536001", "4294967296"}}},
		{"/quote/reinvest", map[string][]string{
			"amount": numbers, "tickLower": append(ticks, "887220", "-887272"), "tickUpper": append(ticks, "-887220", "887272"),
			"route": {"", "Match", "swap"}, "payAsset": append(tokens, w.dep.STKN.Hex()), "slippageBps": slippages,
		}},
	} {
		query := func(change func(url.Values)) string {
			v := url.Values{}
			for name := range path.names {
				v.Set(name, good[name])
			}
			change(v)
			return path.path + "?" + v.Encode()
		}
		if r := c.Get(t, query(func(url.Values) {})); r.Status != http.StatusOK {
			t.Errorf("%s: %d %s", path.path, r.Status, r.Body)
		}
		refused := func(target, name string) {
			t.Helper()
			r := c.Get(t, target)
			code, message := r.Error(t)
			named := strings.Contains(message, `"`+name+`"`) || strings.HasPrefix(name, "tick") && strings.Contains(message, `"tick`)
			if r.Status != 400 || code != "INVALID_INPUT" || !named {
				t.Errorf("%s: %d %s %s, want a 400 of %s", target, r.Status, code, message, name)
			}
		}
		for name, wrong := range path.names {
			for _, value := range wrong {
				refused(query(func(v url.Values) { v.Set(name, value) }), name)
			}
			refused(query(func(v url.Values) { v.Add(name, good[name]) }), name)
			if name != "slippageBps" {
				refused(query(func(v url.Values) { v.Del(name) }), name)
			}
		}
		refused(query(func(v url.Values) { v.Set("unknown", "1") }), "unknown")
	}
	// Path parameters.
	for name, paths := range map[string][]string{"id": {"/deals/%s/valuation"}, "token": {"/assets/%s/value", "/assets/%s/facts"}} {
		wrong := map[string][]string{
			"id":    {"-1", "+1", "01", "1.0", "0x1", "x", "115792089237316195423570985008687907853269984665640564039457584007913129639936"},
			"token": tokens[1:6],
		}[name]
		for _, path := range paths {
			for _, value := range wrong {
				target := fmt.Sprintf(path, value)
				r := c.Get(t, target)
				if code, message := r.Error(t); r.Status != 400 || code != "INVALID_INPUT" || !strings.Contains(message, `"`+name+`"`) {
					t.Errorf("%s: %d %s %s, want a 400 of %s", target, r.Status, code, message, name)
				}
			}
		}
	}
	// More than there is, by far.
	for target, name := range map[string]string{
		"/quote/payout?to=ETH&usdg=" + strings.Repeat("9", 38):                       "usdg",
		"/quote/reinvest?route=zap&payAsset=ETH&amount=1&tickLower=-60&tickUpper=60": "payAsset",
	} {
		if _, message := c.Get(t, target).Error(t); !strings.Contains(message, `"`+name+`"`) {
			t.Errorf("%s: %s", target, message)
		}
	}
	for target, want := range map[string]string{
		"/assets/" + word + "/value": "ASSET_NOT_FOUND", "/assets/" + word + "/facts": "ASSET_NOT_FOUND",
		"/assets/" + w.dep.PositionManager.Hex() + "/value":        "ASSET_NOT_FOUND",
		"/deals/999999/valuation":                                  "DEAL_NOT_FOUND",
		"/range/suggest?term=60&pool=0x" + strings.Repeat("1", 64): "NOT_FOUND",
	} {
		if code, _ := c.Get(t, target).Error(t); code != want {
			t.Errorf("%s: %s, want %s", target, code, want)
		}
	}
}

// TestRequestsFromTheDescription: nothing that the description leads to is a 500, or anything not described.
func TestRequestsFromTheDescription(t *testing.T) {
	w := newWorld(t)
	c := apitest.NewClient(t, w.service, description)
	g := &apitest.Generator{Document: c.Document, MaxBody: 16 << 10, Values: map[string][]string{
		"id": {"1", "5", "20", "40", "66"}, "token": {w.dep.TKN.Hex(), w.dep.USDG.Hex(), w.dep.STKN.Hex()}, "to": {"ETH", w.dep.TKN.Hex()},
		"payAsset": {"ETH", w.dep.TKN.Hex(), w.dep.USDG.Hex()}, "pool": {w.dep.PoolID.Hex()}, "term": {"604800"}, "tickLower": {"-600", "-60000"},
		"tickUpper": {"600", "887220"}, "amount": {"1", "1000000000000000000"}, "eth": {"1000000000000000000"}, "usdg": {"1", "1000000000"},
	}}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	met := map[int]int{}
	for range 10_000 {
		r := g.Next(random, "extra")
		answer := c.Do(t, r.Request)
		met[answer.Status]++
		if answer.Status == http.StatusInternalServerError {
			t.Fatalf("%s %s: %s", r.Method, r.URL, answer.Body)
		}
		if r.Wrong && answer.Status != http.StatusBadRequest {
			t.Fatalf("%s %s is wrong by the description and was answered %d: %s", r.Method, r.URL, answer.Status, answer.Body)
		}
	}
	for _, status := range []int{200, 204, 400, 404, 405} {
		if met[status] == 0 {
			t.Errorf("no request was answered %d: %v", status, met)
		}
	}
}

// TestNothingUndescribed: whatever the description leads to is answered as it says.
func TestNothingUndescribed(t *testing.T) {
	apitest.Schemathesis(t, newWorld(t).service, "../..")
}
