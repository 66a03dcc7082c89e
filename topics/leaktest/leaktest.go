// Package leaktest finds secrets in what a test has gathered, in whatever spelling. Nothing that runs in production
// imports it.
package leaktest

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

var (
	base64Run = regexp.MustCompile(`[A-Za-z0-9+/_-]{8,}`)
	hexRun    = regexp.MustCompile(`[0-9A-Fa-f]{8,}`)
)

// Spellings is a text, and what comes of all that could be base64 or hex in it, wherever that begins.
type Spellings []byte

// Spell reads a text.
func Spell(text []byte) Spellings {
	all := lowerCase(text)
	for _, run := range base64Run.FindAllString(string(text), -1) {
		run = strings.NewReplacer("-", "+", "_", "/").Replace(run)
		for from := range 4 {
			part := run[from:]
			if len(part)%4 == 1 {
				part = part[:len(part)-1]
			}
			raw, _ := base64.RawStdEncoding.DecodeString(part)
			all = append(append(all, 0), lowerCase(raw)...)
		}
	}
	for _, run := range hexRun.FindAllString(string(text), -1) {
		for from := range 2 {
			raw, _ := hex.DecodeString(run[from : len(run)-(len(run)-from)%2])
			all = append(append(all, 0), lowerCase(raw)...)
		}
	}
	return all
}

// Has reports whether something is in the text, in any spelling and in letters of either case.
func (s Spellings) Has(what []byte) bool { return bytes.Contains(s, lowerCase(what)) }

// Search looks through what was gathered at some places. Every secret that is there fails the test. It returns the places
// of each text that is known to be somewhere: without one, there was nothing to look through.
func Search(t testing.TB, places map[string][]byte, secrets map[string]string, known map[string][]byte) (found map[string][]string) {
	t.Helper()
	found = map[string][]string{}
	for place, text := range places {
		all := Spell(text)
		for what, secret := range secrets {
			if all.Has([]byte(secret)) {
				t.Errorf("%s has %s", place, what)
			}
		}
		for what, is := range known {
			if all.Has(is) {
				found[what] = append(found[what], place)
			}
		}
	}
	return found
}

// lowerCase is of letters of ASCII only: what is no text keeps its bytes.
func lowerCase(text []byte) []byte {
	out := bytes.Clone(text)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}

// Registries are those of the processes of a test.
type Registries []*prometheus.Registry

// New is the registry of one more process, or of a part of one.
func (r *Registries) New() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	*r = append(*r, reg)
	return reg
}

// Gathered is all their metrics, as Prometheus reads them.
func (r *Registries) Gathered(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, reg := range *r {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out.Bytes()
}
