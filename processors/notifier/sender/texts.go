package sender

import (
	"bytes"
	"embed"
	"fmt"
	htmltemplate "html/template"
	"math/big"
	"strings"
	"text/template"
	"time"

	"github.com/lienstream/lienstream/processors/notifier"
)

//go:embed templates/*
var files embed.FS

var (
	plainTexts = template.Must(template.ParseFS(files, "templates/*.txt"))
	htmlTexts  = htmltemplate.Must(htmltemplate.ParseFS(files, "templates/*.html"))
)

// Text is a message as it is read.
type Text struct{ Subject, Body, HTML string }

// facts are what a message says.
type facts struct {
	DealID   string `json:"dealId"`
	Borrower bool   `json:"borrower"`
	Stage    string `json:"kind"`
	Hours    int    `json:"hours,omitempty"` // before the expiry
	Expiry   string `json:"expiry"`
	GraceEnd string `json:"graceEnd"`
	Repay    string `json:"repay"` // what the borrower repays, with its unit
	Late     bool   `json:"late"`
	Link     string `json:"link,omitempty"`
}

// lateAfter is how long after its time an alert says that it is late.
const lateAfter = 10 * time.Minute

// usdgDecimals are those of the dollar token, in which caps are.
const usdgDecimals = 6

func render(m *Message, links Links) (Text, error) {
	f := factsOf(m, links)
	return f.render()
}

func factsOf(m *Message, links Links) facts {
	f := facts{
		DealID: m.Event.DealID, Borrower: m.Event.Role == "borrower", Stage: m.Event.Kind,
		Expiry: when(m.Event.Expiry), GraceEnd: when(m.Event.GraceEnd), Repay: units(m.Alert.Deal.Cap, usdgDecimals) + " USDG",
		Late: m.Event.FiredAt > m.Event.Due+uint64(lateAfter/time.Second),
	}
	f.Hours = map[notifier.Stage]int{notifier.Before48: 48, notifier.Before24: 24, notifier.Before6: 6, notifier.Before1: 1}[m.Alert.Stage]
	if links.App != "" {
		f.Link = strings.TrimRight(links.App, "/") + "/deals/" + m.Event.DealID
	}
	return f
}

func (f *facts) render() (Text, error) {
	var subject, body, html bytes.Buffer
	for name, to := range map[string]*bytes.Buffer{"subject.txt": &subject, "alert.txt": &body} {
		if err := plainTexts.ExecuteTemplate(to, name, f); err != nil {
			return Text{}, err
		}
	}
	if err := htmlTexts.ExecuteTemplate(&html, "alert.html", f); err != nil {
		return Text{}, err
	}
	return Text{Subject: strings.TrimSpace(subject.String()), Body: body.String(), HTML: html.String()}, nil
}

// when is a time with its zone.
func when(unix uint64) string {
	return time.Unix(int64(unix), 0).UTC().Format("2 January 2006, 15:04 UTC")
}

// units is a raw amount in whole units, exact.
func units(raw string, decimals int) string {
	n, ok := new(big.Int).SetString(raw, 10)
	if !ok {
		return raw
	}
	whole, rest := new(big.Int).QuoRem(n, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil), new(big.Int))
	fraction := strings.TrimRight(fmt.Sprintf("%0*s", decimals, rest), "0")
	if fraction == "" {
		return whole.String()
	}
	return whole.String() + "." + fraction
}
