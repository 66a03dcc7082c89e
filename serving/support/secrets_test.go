package support

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/leaktest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// No secret and no user text is in a log, a metric or a topic, of any process, in any encoding.
func TestNothingSecretLeaks(t *testing.T) {
	var logged zaptest.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(&logged), zap.DebugLevel))
	brokers := brokertest.Start(t, "kfake")
	w := newWorldOf(t, settings{brokers: brokers, log: log})
	w.cfg.ResumeAfter = time.Millisecond
	w.mine()

	// Settlers that fail say why: one without gas, and a facilitator that repeats what it was sent.
	const title, facilitatorKey, urlKey = "Titleword-of-the-report", "Bearer keyofthefacilitator", "keyintheurl"
	facilitator := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, `{"success":false,"errorReason":%q}`, r.Header.Get("Authorization"))
	}))
	defer facilitator.Close()
	settling := x402.DefaultFacilitatorConfig()
	settling.URL, settling.Authorization = facilitator.URL+"/"+urlKey, facilitatorKey
	refuses, err := x402.NewFacilitator(settling, w.terms)
	check(t, err)
	settling.URL, settling.Authorization = "http://user:"+urlKey+"@127.0.0.1:1/"+urlKey, facilitatorKey
	away, err := x402.NewFacilitator(settling, w.terms)
	check(t, err)
	signed := w.pay(w.chain.Key("payer"), "secret")
	payment := w.header(signed)
	w.cfg.Wait = 100 * time.Millisecond
	for _, settler := range []x402.Settler{w.relayer("no gas"), refuses, away} {
		s := w.start(w.deps(settler))
		if got := s.post(payment, body(title)); got.code() != "PAYMENT_PENDING" {
			t.Errorf("it was to fail: %d %s", got.status, got.body)
		}
		polltest.Until(t, "the settler has failed", func() bool { return testutil.CollectAndCount(s.metrics.settleErrors) > 0 })
		s.stop()
	}
	w.cfg.Wait = 20 * time.Second
	s := w.start(w.deps(w.relayer("relayer")))
	id, token := s.post(payment, body(title)).created(t)
	staff := w.staff()
	check(t, staff.Reply(t.Context(), id, "Replyword of staff"))
	check(t, staff.Decide(t.Context(), id, desk.Accepted, false))
	for _, wrong := range []string{token, token + "x", "", "wrong"} {
		s.ticket(id, wrong)
		s.get("/t/"+id+"/content", wrong)
	}
	s.post("%%%", body(title))
	s.post(w.header(w.pay(w.chain.Key("payer"), "again")), []byte(`{"title":"`+title+`","secret`+title+`":1}`))
	// Not a command of ours, but with user text.
	_, err = w.producer.Send(t.Context(), &kafka.Record{Topic: w.cat.Commands(topics.AppSupport), Partition: 0, Key: signed.From[:], Value: []byte("{")})
	check(t, err)
	polltest.Until(t, "it is skipped", func() bool { return bytes.Contains(w.metrics.Gathered(w.t), []byte(`kind="malformed"`)) })
	s.stop()

	places := map[string][]byte{"log": logged.Bytes(), "metrics": w.metrics.Gathered(w.t)}
	for topic, all := range brokertest.Everything(t, brokers) {
		places["topic "+topic] = all
	}
	mac, err := base64.RawURLEncoding.DecodeString(token)
	check(t, err)
	secrets := map[string]string{
		"the token": token, "the token's bytes": string(mac), "the token's key": w.cfg.Keys.Token[0].Secret, "the text's key": w.cfg.Keys.Text[0],
		"the e-mail address": "a@example.com", "the title": title, "the reply": "Replyword", "the report": "drains",
		"the facilitator's key": strings.Fields(facilitatorKey)[1], "the key in its URL": urlKey,
	}
	for _, name := range []string{"relayer", "no gas", "ada", "payer", "float"} {
		secrets["the key of "+name] = string(crypto.FromECDSA(w.chain.Key(name)))
	}
	// And it would be found: what is in plain text, what is in hex and what is in base64.
	known := map[string][]byte{"ticket": []byte(id), "signature": signed.Signature, "sealed reply": w.ticketOf(id).Ticket.Replies[0].Sealed}
	found := leaktest.Search(t, places, secrets, known)
	for what := range known {
		if len(found[what]) == 0 {
			t.Errorf("the %s was found nowhere: there is nothing to look through in %v", what, slices.Sorted(maps.Keys(places)))
		}
	}
	for _, line := range []string{"payment advanced", "payment not settled yet", "skipped a command that cannot be decoded", "task"} {
		if !bytes.Contains(places["log"], []byte(line)) {
			t.Errorf("nobody logged %q", line)
		}
	}
	for _, name := range []string{"lienstream_support_reports_total", "lienstream_support_commands_total", "lienstream_processors_"} {
		if !bytes.Contains(places["metrics"], []byte(name)) {
			t.Errorf("nobody counted %s", name)
		}
	}
}

// The token of a ticket opens that ticket only, also under a key that is no longer the first.
func TestATokenOpensItsTicketOnly(t *testing.T) {
	w := newWorld(t)
	w.mine()
	w.fund(w.chain.Address("stranger"), deposit)
	s := w.start(w.deps(w.relayer("relayer")))
	payment := w.header(w.pay(w.chain.Key("payer"), "one"))
	one, tokenOne := s.post(payment, body("One")).created(t)
	two, tokenTwo := s.post(w.header(w.pay(w.chain.Key("stranger"), "two")), body("Two")).created(t)
	opens := func(s *service, id, token string, want int) {
		t.Helper()
		if got := s.ticket(id, token); got.status != want {
			t.Errorf("%d, want %d: %s", got.status, want, got.body)
		}
	}
	opens(s, one, tokenOne, http.StatusOK)
	opens(s, two, tokenOne, http.StatusUnauthorized)
	opens(s, one, tokenTwo, http.StatusUnauthorized)
	s.stop()

	old := w.cfg.Keys.Token[0]
	old.Until = time.Now().Add(time.Hour)
	w.cfg.Keys.Token = []TokenKey{{Secret: "another token key, of thirty-two bytes"}, old}
	rotated := w.start(w.deps(w.relayer("relayer")))
	opens(rotated, one, tokenOne, http.StatusOK)
	id, fresh := rotated.post(payment, body("One")).created(t)
	if id != one || fresh == tokenOne {
		t.Errorf("the same request under a new key: ticket %s, token %s", id, fresh)
	}
	opens(rotated, one, fresh, http.StatusOK)
	rotated.stop()
	deps := w.deps(w.relayer("relayer"))
	deps.Now = func() time.Time { return old.Until }
	later := w.start(deps)
	opens(later, one, tokenOne, http.StatusUnauthorized)
	opens(later, one, fresh, http.StatusOK)
}

// What is not a report is refused by name; what is one encodes to the same report.
func FuzzDecodeReport(f *testing.F) {
	f.Add(body("x"))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"title":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeReport(text)
		if err != nil {
			return
		}
		if r.validate(1000) != nil {
			return
		}
		again, err := json.Marshal(r)
		check(t, err)
		back, err := decodeReport(again)
		if err != nil || back.validate(1000) != nil || back.Title != r.Title {
			t.Fatalf("%s came back as %+v: %v", again, back, err)
		}
	})
}
