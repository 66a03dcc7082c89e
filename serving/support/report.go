package support

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/lienstream/lienstream/serving/httpapi"
)

// Report is a bug report. Its texts are Markdown.
type Report struct {
	Title          string   `json:"title"`
	Severity       string   `json:"severity"`
	Contracts      []string `json:"contracts"`
	ForkBlock      *uint64  `json:"forkBlock"`
	Description    string   `json:"description"`
	Impact         string   `json:"impact"`
	Poc            string   `json:"poc,omitempty"`
	Recommendation string   `json:"recommendation,omitempty"`
	References     []string `json:"references,omitempty"`
	Contact        *Contact `json:"contact"`
	Agent          *Agent   `json:"agent,omitempty"`
}

// Contact is how to reach the reporter.
type Contact struct {
	Email string `json:"email"`
}

// Agent is the reporting program.
type Agent struct {
	Name     string `json:"name"`
	Operator string `json:"operator,omitempty"`
	URL      string `json:"url,omitempty"`
}

var severities = []string{"CRITICAL", "HIGH", "MEDIUM", "LOW"}

// Bounds of a report. Its total size is bounded by the body limit of 16 KiB.
const (
	maxLine      = 200
	maxText      = 12_000
	maxContracts = 20
	maxRefs      = 20
	maxURL       = 500
	maxEmail     = 254
)

// decodeReport decodes a body strictly: no unknown or duplicate fields, and exact case.
func decodeReport(body []byte) (*Report, error) {
	var r Report
	err := json.Unmarshal(body, &r, json.RejectUnknownMembers(true))
	if err == nil {
		return &r, nil
	}
	name := "body"
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if path := strings.TrimPrefix(string(semantic.JSONPointer), "/"); path != "" {
			name = shown(strings.ReplaceAll(path, "/", "."))
		}
	} else if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && syntactic.JSONPointer != "" {
		name = shown(strings.ReplaceAll(strings.TrimPrefix(string(syntactic.JSONPointer), "/"), "/", "."))
	}
	return nil, invalid(name, "is unknown, given twice or of a wrong type, or the body is not a JSON object")
}

// shown is the part of an unknown field name that may be sent back.
func shown(name string) string {
	for part := range strings.SplitSeq(name, ".") {
		if !httpapi.PlainName(part) && strings.Trim(part, "0123456789") != "" {
			return "body"
		}
	}
	return name
}

func invalid(name, format string, args ...any) *httpapi.Error {
	return &httpapi.Error{Code: httpapi.InvalidInput, Message: fmt.Sprintf("%q ", name) + fmt.Sprintf(format, args...)}
}

// validate returns the first error of a report, or nil.
func (r *Report) validate(head uint64) error {
	for _, f := range []struct {
		name, text string
		needed     bool
		most       int
		lines      bool
	}{
		{"title", r.Title, true, maxLine, false},
		{"description", r.Description, true, maxText, true},
		{"impact", r.Impact, true, maxText, true},
		{"poc", r.Poc, r.Severity == "CRITICAL" || r.Severity == "HIGH", maxText, true},
		{"recommendation", r.Recommendation, false, maxText, true},
	} {
		if err := checkText(f.name, f.text, f.needed, f.most, f.lines); err != nil {
			return err
		}
	}
	if !slices.Contains(severities, r.Severity) {
		return invalid("severity", "must be one of %s", strings.Join(severities, ", "))
	}
	if len(r.Contracts) == 0 || len(r.Contracts) > maxContracts {
		return invalid("contracts", "must list 1 to %d addresses", maxContracts)
	}
	for i, text := range r.Contracts {
		if !isAddress(text) {
			return invalid(fmt.Sprintf("contracts.%d", i), "must be an address, in one case or with its EIP-55 checksum")
		}
	}
	switch {
	case r.ForkBlock == nil:
		return invalid("forkBlock", "is missing")
	case *r.ForkBlock > head:
		return invalid("forkBlock", "must not be above the chain's head, %d", head)
	case len(r.References) > maxRefs:
		return invalid("references", "must list at most %d links", maxRefs)
	case r.Contact == nil:
		return invalid("contact", "is missing")
	case !isEmail(r.Contact.Email):
		return invalid("contact.email", "must be an e-mail address alone")
	}
	for i, link := range r.References {
		if !isLink(link) {
			return invalid(fmt.Sprintf("references.%d", i), "must be an http or https URL of at most %d bytes", maxURL)
		}
	}
	if a := r.Agent; a != nil {
		if err := checkText("agent.name", a.Name, true, maxLine, false); err != nil {
			return err
		}
		if err := checkText("agent.operator", a.Operator, false, maxLine, false); err != nil {
			return err
		}
		if a.URL != "" && !isLink(a.URL) {
			return invalid("agent.url", "must be an http or https URL of at most %d bytes", maxURL)
		}
	}
	return nil
}

func checkText(name, text string, needed bool, most int, lines bool) error {
	switch {
	case needed && strings.TrimSpace(text) == "":
		return invalid(name, "is missing")
	case utf8.RuneCountInString(text) > most:
		return invalid(name, "must have at most %d characters", most)
	}
	for _, c := range text {
		if unicode.IsControl(c) && (!lines || c != '\n' && c != '\t' && c != '\r') {
			return invalid(name, "must not have control characters")
		}
	}
	return nil
}

// isAddress accepts an address in one case, or with a valid checksum.
func isAddress(text string) bool {
	digits, ok := strings.CutPrefix(text, "0x")
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != common.AddressLength {
		return false
	}
	return digits == strings.ToLower(digits) || digits == strings.ToUpper(digits) || text == common.Address(raw).Hex()
}

// plain reports whether a text has no characters that a terminal or a mail may take for a command, or that hide other
// text.
func plain(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsGraphic(c) })
}

func isEmail(text string) bool {
	a, err := mail.ParseAddress(text)
	return err == nil && plain(text) && a.Name == "" && a.Address == text && len(text) <= maxEmail && !strings.ContainsAny(text, "\r\n \"")
}

func isLink(text string) bool {
	u, err := url.Parse(text)
	return err == nil && plain(text) && len(text) <= maxURL && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}
