package sender

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/serving/httpapi/apitest"
)

// sample is a message of a name.
type sample struct {
	name string
	m    Message
}

// samples are every kind, to both parties, in time and late; one has the longest of all that may be in it.
func samples() (all []sample) {
	ann, bob := common.Address{1}, common.Address{2}
	deal := notifier.Deal{ID: "7", Borrower: ann, Lender: bob, Amount: "2500000000000000000", Token: common.Address{3}, Cap: "1234500000", Expiry: 2_000_000_000, GraceEnd: 2_000_086_400}
	asset := &notifier.Asset{Token: deal.Token, Symbol: "WETH", Decimals: 18}
	news := notifier.News{
		Epoch: 12, At: 2_000_400_000, StartsAt: 2_000_000_000, EndsAt: 2_000_604_800, Term: 21 * 24 * 3600,
		Budget7: "1000000000000000000", Budget21: "2500000000000000000", Reserved: "2250000000000000000",
	}
	dues := map[notifier.Stage]uint64{
		notifier.Before48: deal.Expiry - 48*3600, notifier.Before24: deal.Expiry - 24*3600, notifier.Before6: deal.Expiry - 6*3600,
		notifier.Before1: deal.Expiry - 3600, notifier.AtGraceEnd: deal.GraceEnd,
	}
	add := func(name string, stage notifier.Stage, wallet common.Address, late uint64, d *notifier.Deal, n *notifier.News) {
		due := dues[stage]
		if due == 0 {
			due = deal.Expiry
		}
		alert := notifier.Alert{Deal: d, News: n, Stage: stage, Due: due, FiredAt: due, Collateral: asset}
		event := alert.Event(notifier.Address{Wallet: wallet, Channel: notifier.Email, Stage: stage})
		all = append(all, sample{name, Message{Channel: notifier.Email, Alert: alert, Event: event, Now: due + late}})
	}
	for stage := notifier.Before48; stage <= notifier.AtGraceEnd; stage++ {
		add(stage.String()+"-borrower", stage, ann, 0, &deal, nil)
		add(stage.String()+"-lender", stage, bob, 0, &deal, nil)
	}
	add("t1-late", notifier.Before1, ann, 3599, &deal, nil)
	add("t24-ended", notifier.Before24, ann, 24*3600, &deal, nil)
	for _, stage := range []notifier.Stage{notifier.EpochOpen, notifier.Budget90, notifier.Budget100} {
		of := news
		if stage == notifier.Budget100 {
			of.Reserved = of.Budget21
		}
		add(stage.String(), stage, ann, 0, nil, &of)
	}
	position, unknown, unnamed := deal, deal, deal
	position.Position, position.Amount = true, "1234"
	add("position", notifier.Before24, ann, 0, &position, nil)
	asset = nil
	add("unknown-token", notifier.Before24, bob, 0, &unknown, nil)
	asset = &notifier.Asset{Token: deal.Token, Symbol: "FREE\r\nhttps://evil.example", Decimals: 6}
	add("unnamed-token", notifier.AtGraceEnd, ann, 0, &unnamed, nil)
	asset = &notifier.Asset{Token: deal.Token, Symbol: strings.Repeat("W", 16)}
	huge := deal
	huge.ID, huge.Cap, huge.Amount = strings.Repeat("9", 78), strings.Repeat("8", 39), strings.Repeat("7", 78)
	add("longest", notifier.Before1, ann, 3599, &huge, nil)
	wallet := common.HexToAddress("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed")
	ask := notifier.Alert{Stage: notifier.ToConfirm, Due: 1_999_999_999, Request: &notifier.Request{Wallet: wallet}}
	event := ask.Event(notifier.Address{Wallet: common.Address{9}, Channel: notifier.Email, Stage: notifier.ToConfirm})
	all = append(all, sample{"confirm", Message{Channel: notifier.Email, To: "ann@example.com", Alert: ask, Event: event, ConfirmBy: 2_000_000_000}})
	former := notifier.Alert{Stage: notifier.ToConfirm, Due: 1_999_999_999}
	event = former.Event(notifier.Address{Wallet: wallet, Channel: notifier.Email, Stage: notifier.ToConfirm})
	all = append(all, sample{"confirm-former", Message{Channel: notifier.Email, Alert: former, Event: event, ConfirmBy: 2_000_000_000}})
	return all
}

func (s *sample) text(t *testing.T) Text {
	t.Helper()
	keys, err := notifier.ParseKeys("1:" + strings.Repeat("11", 32))
	if err != nil {
		t.Fatal(err)
	}
	e := Email{cfg: EmailConfig{Links: Links{App: "https://app.example", Notify: "https://notify.example"}}, keys: keys}
	text, err := e.text(&s.m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestGoldenTexts: what is said to whom stands in testdata. LIENSTREAM_REWRITE=1 writes it: read the diff.
func TestGoldenTexts(t *testing.T) {
	known := map[string]bool{}
	for _, s := range samples() {
		text := s.text(t)
		for name, got := range map[string]string{s.name + ".txt": "Subject: " + text.Subject + "\n\n" + text.Body, s.name + ".html": text.HTML} {
			file := filepath.Join("testdata", name)
			known[file] = true
			if os.Getenv("LIENSTREAM_REWRITE") != "" {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				continue
			}
			want, err := os.ReadFile(file)
			if err != nil || string(want) != got {
				t.Errorf("%s: %v; LIENSTREAM_REWRITE=1 go test ./processors/notifier/sender writes it; now\n%s", file, err, got)
			}
		}
	}
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !known[file] {
			t.Errorf("%s is of no text", file)
		}
	}
}

// Every mail can be read in Chromium, on a telephone and on a desk, in light and in dark.
func TestShown(t *testing.T) {
	t.Parallel()
	browser := apitest.Browser(t)
	for _, s := range samples() {
		apitest.Legible(t, browser, s.name, "data:text/html;base64,"+base64.StdEncoding.EncodeToString([]byte(s.text(t).HTML)))
	}
}
