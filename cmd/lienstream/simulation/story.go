package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// story is the log of a run for a person: when, which host, what.
type story struct {
	mu    sync.Mutex
	out   io.Writer     // nil: nobody reads it
	wire  *bytes.Buffer // gets a line for all that is sent; nil: nobody reads that
	began time.Time
}

// level is what the roles log.
func (s *story) level() string {
	if s.out == nil {
		return "fatal"
	}
	return "info"
}

// tell adds a line.
func (s *story) tell(host, what string, about ...string) {
	if s.out == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began.IsZero() {
		s.began = now()
	}
	_, _ = fmt.Fprintf(s.out, "%9.3fs  %-11s %s %s\n", now().Sub(s.began).Seconds(), host, what, strings.Join(about, " "))
}

// of is the log of a host.
func (s *story) of(host string) io.Writer { return &hostLog{s, host} }

type hostLog struct {
	story *story
	host  string
}

// skipped are fields that every line has.
var skipped = []string{"msg", "ts", "level", "logger", "chain", "caller", "stacktrace"}

func (l *hostLog) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		var fields map[string]any
		if json.Unmarshal(line, &fields) != nil {
			l.story.tell(l.host, strings.TrimSpace(string(line)))
			continue
		}
		var about []string
		for _, k := range slices.Sorted(maps.Keys(fields)) {
			if !slices.Contains(skipped, k) {
				about = append(about, fmt.Sprintf("%s=%v", k, fields[k]))
			}
		}
		level := ""
		if fields["level"] != "info" {
			level = strings.ToUpper(fmt.Sprint(fields["level"])) + " "
		}
		l.story.tell(l.host, fmt.Sprintf("%s%s%v", level, cmp.Or(prefixed(fields["logger"]), ""), fields["msg"]), about...)
	}
	return len(b), nil
}

func prefixed(logger any) string {
	if logger == nil {
		return ""
	}
	return fmt.Sprint(logger) + ": "
}

// kindOf is a host's name without its number: ingester, processor or serving.
func kindOf(host string) string { return strings.TrimRight(host, "0123456789") }
