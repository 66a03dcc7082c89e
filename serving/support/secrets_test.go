package support

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/topics/kafka"
)

// Nothing secret, and nothing that anybody wrote, is in a log, a metric or a topic.
func TestNothingSecretLeaks(t *testing.T) {
	w := newWorld(t)
	w.mine()
	var logged zaptest.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(&logged), zap.DebugLevel))
	reg := prometheus.NewRegistry()
	service, err := New(w.cfg, w.deps(w.relayer("relayer")), reg, log)
	check(t, err)
	s := w.run(service)

	const title = "Titleword-of-the-report"
	id, token := s.post(w.header(w.pay(w.chain.Key("payer"), "secret")), body(title)).created(t)
	staff := w.staff()
	check(t, staff.Reply(t.Context(), id, "Replyword of staff"))
	check(t, staff.Decide(t.Context(), id, desk.Accepted, false))
	for _, wrong := range []string{token, token + "x", "", "wrong"} {
		s.ticket(id, wrong)
		s.get("/t/"+id+"/content", wrong)
	}
	s.post("%%%", body(title))
	s.post(w.header(w.pay(w.chain.Key("payer"), "again")), []byte(`{"title":"`+title+`","secret`+title+`":1}`))
	s.stop()

	var metrics bytes.Buffer
	families, err := reg.Gather()
	check(t, err)
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&metrics, f)
		check(t, err)
	}
	places := map[string]string{"log": logged.String(), "metrics": metrics.String()}
	for topic, text := range w.everything() {
		places["topic "+topic] = text
	}
	secrets := map[string]string{
		"the token": token, "the token's key": w.cfg.Keys.Token[0], "the text's key": w.cfg.Keys.Text[0],
		"the e-mail address": "a@example.com", "the title": title, "the reply": "Replyword", "the report": "drains",
	}
	for _, name := range []string{"relayer", "ada", "payer", "float"} {
		secrets["the key of "+name] = common.Bytes2Hex(crypto.FromECDSA(w.chain.Key(name)))
	}
	if !strings.Contains(places["log"], "payment moved") || !strings.Contains(places["metrics"], "lienstream_support_reports_total") {
		t.Errorf("there is nothing to look through: %v", slices.Sorted(maps.Keys(places)))
	}
	audited := false
	for place, text := range places {
		audited = audited || strings.Contains(text, id)
		for what, secret := range secrets {
			if strings.Contains(strings.ToLower(text), strings.ToLower(secret)) {
				t.Errorf("%s has %s", place, what)
			}
		}
	}
	if !audited {
		t.Error("no topic names the ticket: they were not read")
	}
}

// everything is all records of all topics, as text.
func (w *world) everything() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	admin, err := kafka.NewAdmin(w.kafka)
	check(w.t, err)
	defer admin.Close()
	for _, topic := range w.cat.Topics() {
		ends, err := admin.EndOffsets(ctx, topic.Name())
		check(w.t, err)
		for partition, end := range ends {
			if end == 0 {
				continue
			}
			r, err := kafka.NewReader(w.kafka, topic.Name(), int32(partition), 0, kafka.ReaderOptions{MaxWait: 20 * time.Millisecond})
			check(w.t, err)
			var text strings.Builder
			for records := []*kafka.Record(nil); ; {
				waiting, stop := context.WithTimeout(ctx, 2*time.Second) // the end of a transaction is no record
				records, err = r.Poll(waiting, records)
				stop()
				for _, record := range records {
					text.Write(record.Key)
					text.Write(record.Value)
				}
				if err != nil || len(records) > 0 && records[len(records)-1].Offset+2 >= end {
					break
				}
			}
			r.Close()
			out[fmt.Sprintf("%s/%d", topic.Name(), partition)] = text.String()
		}
	}
	return out
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
	w.cfg.Keys.Token = []string{"another token key, of thirty-two bytes", old}
	rotated := w.start(w.deps(w.relayer("relayer")))
	opens(rotated, one, tokenOne, http.StatusOK)
	id, fresh := rotated.post(payment, body("One")).created(t)
	if id != one || fresh == tokenOne {
		t.Errorf("the same request under a new key: ticket %s, token %s", id, fresh)
	}
	opens(rotated, one, fresh, http.StatusOK)
	rotated.stop()
	w.cfg.Keys.Token = w.cfg.Keys.Token[:1]
	later := w.start(w.deps(w.relayer("relayer")))
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
