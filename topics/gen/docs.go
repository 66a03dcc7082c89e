package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// page is where people read of the topics, from the folder of topics.
var page = filepath.Join("..", "docs", "topics.md")

// The part of the page that is written here stands between these lines.
const (
	pageBegin = "<!-- written by topics/gen -->\n"
	pageEnd   = "<!-- end of what topics/gen writes -->\n"
)

// generatePage writes what the ent and evt topics have into the page of topics.
func generatePage(dir string, all []entity) (map[string][]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, page))
	if err != nil {
		return nil, err
	}
	before, rest, begun := bytes.Cut(text, []byte(pageBegin))
	_, after, ended := bytes.Cut(rest, []byte(pageEnd))
	if !begun || !ended {
		return nil, fmt.Errorf("%s: no place for the topics: want %q and %q", page, pageBegin, pageEnd)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(pageBegin + "\n| entity topic | key | what |\n|---|---|---|\n")
	for _, e := range all {
		fmt.Fprintf(&b, "| `ent.%s` | %s | %s |\n", e.snake(), e.key, e.doc)
	}
	b.WriteString("\n| event topics | what | events |\n|---|---|---|\n")
	for _, f := range families {
		var names []string
		for _, e := range f.events {
			names = append(names, "`"+reflect.TypeOf(e).Name()+"`")
		}
		fmt.Fprintf(&b, "| `evt.%[1]s`, `evt.%[1]s.final` | %[2]s | %[3]s |\n", f.name, f.doc, strings.Join(names, ", "))
	}
	b.WriteString("\n" + pageEnd)
	b.Write(after)
	return map[string][]byte{page: b.Bytes()}, nil
}
