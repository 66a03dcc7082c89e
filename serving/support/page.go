package support

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"math/big"
	"strings"
	"time"

	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"

	"github.com/lienstream/lienstream/serving/httpapi"
)

//go:embed page/page.html
var pageHTML string

//go:embed page/ticket.html
var ticketHTML string

//go:embed page/page.js
var pageScript []byte

//go:embed page/page.css
var pageStyle []byte

// pagePolicy allows the page's own script and style, and nothing else: no inline script, no image, no other
// host.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

var (
	pageTemplate   = template.Must(template.New("page").Parse(pageHTML))
	ticketTemplate = template.Must(template.New("ticket").Funcs(template.FuncMap{
		"markdown": markdown,
		"when":     func(at int64) string { return time.Unix(at, 0).UTC().Format("2 January 2006, 15:04 UTC") },
	}).Parse(ticketHTML))
	sanitizer = newSanitizer()
)

// newSanitizer allows text markup. Links get nofollow, and images are removed.
func newSanitizer() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em", "strong", "ul", "ol", "li")
	p.AllowAttrs("href").OnElements("a")
	p.AllowURLSchemes("http", "https")
	p.RequireParseableURLs(true)
	p.RequireNoFollowOnLinks(true)
	p.RequireNoReferrerOnLinks(true)
	p.AddTargetBlankToFullyQualifiedLinks(true)
	return p
}

// markdown renders Markdown: HTML in it is shown as text, and the output is sanitized as well.
func markdown(text string) (template.HTML, error) {
	var out bytes.Buffer
	if err := goldmark.Convert([]byte(text), &out); err != nil {
		return "", fmt.Errorf("render Markdown: %w", err)
	}
	return template.HTML(sanitizer.SanitizeBytes(out.Bytes())), nil
}

// page is the page without the ticket, so it needs no token. The token is in the URL's fragment, which browsers
// do not send; the script sends it in the header.
func (s *Service) page(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, map[string]string{"Header": s.ticketHeader()}); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	res.Body = append(res.Body, out.Bytes()...)
	pageHeaders(res, "text/html; charset=utf-8")
	return nil
}

// content is the ticket as HTML, for clients with its token.
func (s *Service) content(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	t, err := s.admitted(ctx, req)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := ticketTemplate.Execute(&out, map[string]any{"T": t, "Deposit": s.shownDeposit(&t.Deposit)}); err != nil {
		return fmt.Errorf("render ticket: %w", err)
	}
	res.Body = append(res.Body, out.Bytes()...)
	pageHeaders(res, "text/html; charset=utf-8")
	return nil
}

// shownDeposit is the deposit that was paid, whatever a report costs now. If its token is no longer the configured one,
// it is in the token's smallest unit.
func (s *Service) shownDeposit(d *depositJSON) string {
	units, ok := new(big.Int).SetString(d.Amount, 10)
	if !ok || d.Asset != strings.ToLower(s.terms.Token.Hex()) {
		return d.Amount + " of " + d.Asset
	}
	return price(units, s.cfg.Decimals) + " " + s.cfg.Symbol
}

func (s *Service) script(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	res.Body = append(res.Body, pageScript...)
	pageHeaders(res, "text/javascript; charset=utf-8")
	return nil
}

func (s *Service) style(_ context.Context, _ *httpapi.Request, res *httpapi.Response) error {
	res.Body = append(res.Body, pageStyle...)
	pageHeaders(res, "text/css; charset=utf-8")
	return nil
}

func pageHeaders(res *httpapi.Response, media string) {
	res.SetHeader("Content-Type", media)
	res.SetHeader("Content-Security-Policy", pagePolicy)
	res.SetHeader("Referrer-Policy", "no-referrer")
	res.SetHeader("X-Robots-Tag", "noindex")
}
