package sender

import (
	"bytes"
	"embed"
	"fmt"
	htmltemplate "html/template"
	"math/big"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/notifier"
)

//go:embed templates/*
var files embed.FS

var (
	plainTexts = template.Must(template.ParseFS(files, "templates/*.txt"))
	htmlTexts  = htmltemplate.Must(htmltemplate.ParseFS(files, "templates/*.html"))
)

// Text is a rendered message.
type Text struct{ Subject, Body, HTML string }

// facts are the template variables for a deal or an epoch.
type facts struct {
	Stage string `json:"kind"`
	Late  bool   `json:"late"`
	Link  string `json:"link,omitempty"`

	Unsubscribe string `json:"-"` // a link, in mails alone: a chat and a browser have a way of their own

	DealID     string `json:"dealId,omitempty"`
	Borrower   bool   `json:"borrower,omitempty"`
	Hours      int    `json:"hours,omitempty"` // before the expiry, unless that has passed
	GraceEnded bool   `json:"over,omitempty"`  // the grace period has ended
	Expiry     string `json:"expiry,omitempty"`
	GraceEnd   string `json:"graceEnd,omitempty"`
	Repay      string `json:"repay,omitempty"` // what the borrower repays, with its unit

	Collateral string `json:"collateral,omitempty"` // with its unit

	Epoch    uint32 `json:"epoch,omitempty"`
	StartsAt string `json:"startsAt,omitempty"`
	EndsAt   string `json:"endsAt,omitempty"`
	Budget7  string `json:"budget7,omitempty"` // with their unit
	Budget21 string `json:"budget21,omitempty"`
	Days     uint32 `json:"days,omitempty"` // of the deals whose budget it is
	Reserved string `json:"reserved,omitempty"`

	ReservedAt string `json:"reservedAt,omitempty"` // when it was so much: some may be returned since
}

// lateAfter is the delay from which an alert says that it is late: by block time, whether it was fired late or sent
// late.
const lateAfter = 10 * time.Minute

func render(m *Message, links Links) (Text, error) {
	f := factsOf(m, links)
	return f.render()
}

func factsOf(m *Message, links Links) facts {
	now := max(m.Event.FiredAt, m.Now)
	due := m.Event.Due
	if m.Alert.News != nil {
		due = max(due, m.Alert.News.Due()) // they were retracted meanwhile, and are true again since
	}
	f := facts{Stage: m.Event.Kind, Late: now > due+uint64(lateAfter/time.Second), Link: strings.TrimRight(links.App, "/")}
	path := "/epochs"
	if n := m.Alert.News; n != nil {
		f.Epoch, f.StartsAt, f.EndsAt, f.Days = n.Epoch, when(n.StartsAt), when(n.EndsAt), n.Term/(24*3600)
		f.Budget7, f.Budget21 = units(n.Budget7, contracts.TokenDecimals)+" sTKN", units(n.Budget21, contracts.TokenDecimals)+" sTKN"
		if n.Reserved != "" {
			f.Reserved, f.ReservedAt = units(n.Reserved, contracts.TokenDecimals)+" sTKN", when(n.At)
		}
	} else {
		path = "/deals/" + m.Event.DealID
		f.DealID, f.Borrower = m.Event.DealID, m.Event.Role == "borrower"
		f.Expiry, f.GraceEnd, f.Repay = when(m.Event.Expiry), when(m.Event.GraceEnd), units(m.Alert.Deal.Cap, contracts.USDGDecimals)+" USDG"
		f.Collateral = collateral(m.Alert.Deal, m.Alert.Collateral)
		if f.GraceEnded = now >= m.Event.GraceEnd; now < m.Event.Expiry {
			f.Hours = map[notifier.Stage]int{notifier.Before48: 48, notifier.Before24: 24, notifier.Before6: 6, notifier.Before1: 1}[m.Alert.Stage]
		}
	}
	if f.Link != "" {
		f.Link += path
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

// collateral names the collateral of a deal. A contract's symbol is only used if it is a plain word; otherwise its
// address is, which can be looked up.
func collateral(d *notifier.Deal, asset *notifier.Asset) string {
	switch {
	case d.Amount == "":
		return ""
	case d.Position:
		return "liquidity position " + d.Amount
	case asset == nil:
		return d.Amount + " raw units of " + strings.ToLower(d.Token.Hex())
	case !symbols.MatchString(asset.Symbol):
		return units(d.Amount, int(asset.Decimals)) + " of " + strings.ToLower(d.Token.Hex())
	}
	return units(d.Amount, int(asset.Decimals)) + " " + asset.Symbol
}

var symbols = regexp.MustCompile(`^[A-Za-z0-9$][A-Za-z0-9$+_-]{0,15}$`)

// when formats a time with its zone.
func when(unix uint64) string {
	return time.Unix(int64(unix), 0).UTC().Format("2 January 2006, 15:04 UTC")
}

// units formats a raw amount in whole units, exactly.
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
