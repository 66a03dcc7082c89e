package sender

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lienstream/lienstream/processors/notifier"
)

// told is the payload of a push as a service worker reads it.
type told struct {
	ID, Title, Body, URL string
	Facts                struct {
		Kind              string
		Late              bool
		Link              string
		DealID            string
		Borrower          bool
		Hours             int
		Over              bool
		Expiry, GraceEnd  string
		Repay, Collateral string
		Epoch             uint32
		StartsAt, EndsAt  string
		Budget7, Budget21 string
		Days              uint32
		Reserved          string
		ReservedAt        string
	}
}

// The facts of a text that its reader could act on: times, amounts with their unit, a collateral in brackets, links.
var (
	times       = regexp.MustCompile(`\d+ [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC`)
	amounts     = regexp.MustCompile(`[\d.]+ (?:USDG|sTKN)`)
	collaterals = regexp.MustCompile(`\(([^)]+)\)`)
	urls        = regexp.MustCompile(`https://\S+`)
)

// TestAPushSaysTheSame: each fact in the JSON of a push is in its text, and the text says nothing that is not in the
// JSON: by either alone a reader knows what, when, how much, what happens next and where.
func TestAPushSaysTheSame(t *testing.T) {
	p := Push{cfg: PushConfig{Links: Links{App: "https://app.example", Notify: "https://notify.example"}}}
	for _, s := range samples() {
		if s.m.Alert.Stage == notifier.ToConfirm {
			continue // browsers are asked for none
		}
		s.m.ID = "the-id"
		payload, err := p.payload(&s.m)
		if err != nil {
			t.Fatal(err)
		}
		var got told
		d := json.NewDecoder(bytes.NewReader(payload))
		d.DisallowUnknownFields()
		if err := d.Decode(&got); err != nil {
			t.Fatalf("%s: %s: %v", s.name, payload, err)
		}
		f := &got.Facts
		says := func(where, what string) {
			t.Helper()
			if what == "" || !strings.Contains(where, what) {
				t.Errorf("%s: %q is not in %q", s.name, what, where)
			}
		}
		same := func(what string, json, text bool) {
			t.Helper()
			if json != text {
				t.Errorf("%s: %s is %v in %s", s.name, what, json, payload)
			}
		}
		same("id", got.ID == "the-id", true)
		same("kind", f.Kind == s.m.Event.Kind, true)
		same("link", f.Link == got.URL, true)
		says(got.Body, f.Link)
		same("late", f.Late, strings.HasPrefix(got.Body, "This message is late."))
		if s.m.Alert.News != nil {
			same("dealId", f.DealID == "" && f.Expiry == "" && f.GraceEnd == "" && f.Repay == "" && f.Collateral == "" && f.Hours == 0, true)
			says(got.Title, fmt.Sprintf("Epoch %d", f.Epoch))
			says(got.Body, f.EndsAt)
			says(f.Link, "https://app.example/epochs")
			if f.Kind == "epoch" {
				says(got.Body, fmt.Sprintf("Epoch %d runs from %s to %s", f.Epoch, f.StartsAt, f.EndsAt))
				says(got.Body, fmt.Sprintf("%s for 7-day deals, %s for 21-day deals", f.Budget7, f.Budget21))
			} else {
				says(got.Title, fmt.Sprintf("%d-day deals", f.Days))
				says(got.Body, fmt.Sprintf("%s of %s were reserved on %s.", f.Reserved, map[uint32]string{7: f.Budget7, 21: f.Budget21}[f.Days], f.ReservedAt))
			}
		} else {
			same("epoch", f.Epoch == 0 && f.StartsAt == "" && f.EndsAt == "" && f.Budget7 == "" && f.Budget21 == "" && f.Days == 0 && f.Reserved == "", true)
			says(f.Link, "https://app.example/deals/"+f.DealID)
			says(strings.ToLower(got.Body), "deal "+f.DealID+" ")
			says(got.Body, f.GraceEnd)
			says(got.Body, "("+f.Collateral+")")
			same("over", f.Over, strings.Contains(got.Title, "the grace period has ended"))
			same("hours", f.Hours > 0, strings.Contains(got.Body, " expires on "+f.Expiry) && f.Expiry != "")
			if f.Hours > 0 && !f.Late {
				says(got.Title, fmt.Sprintf("expires in %d hour", f.Hours))
			}
			if f.Over {
				same("borrower", f.Borrower, strings.Contains(got.Body, "The lender may claim"))
			} else {
				says(got.Body, f.Expiry)
				says(got.Body, f.Repay)
				same("borrower", f.Borrower, strings.Contains(got.Body, "Repay "+f.Repay))
			}
		}
		known := map[*regexp.Regexp][]string{
			times: {f.Expiry, f.GraceEnd, f.StartsAt, f.EndsAt, f.ReservedAt}, amounts: {f.Repay, f.Budget7, f.Budget21, f.Reserved},
			collaterals: {f.Collateral}, urls: {f.Link},
		}
		for of, facts := range known {
			for _, found := range of.FindAllStringSubmatch(got.Title+"\n"+got.Body, -1) {
				if what := found[len(found)-1]; !slices.Contains(facts, what) {
					t.Errorf("%s: %q of the text is not in the facts: %s", s.name, what, payload)
				}
			}
		}
	}
}
