package rpc

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// limits are the maximum sizes of an endpoint's requests. They are unknown at first: each shrinks when a
// request is refused, or fails for a reason that may be its size, and grows back.
type limits struct {
	batch     *limit // calls of a batch
	span      *limit // blocks of one eth_getLogs
	addresses *limit // of one eth_getLogs
	failures  *streak
}

func newLimits(c Config) limits {
	return limits{batch: newLimit(c.MaxBatch), span: newLimit(int(c.MaxRange)), addresses: newLimit(max(1, len(c.Addresses))), failures: &streak{}}
}

// streak counts requests that failed in a row, each sent after the failure of the one before.
type streak struct {
	mu   sync.Mutex
	n    int
	last time.Time
}

// persistent is the number of failed requests for logs in a row after which their size may be the cause, whatever the
// error.
const persistent = 3

// add counts a failed request and returns how many failed in a row, at least `least`. 0: the request was sent before
// the last failure, and adds nothing.
func (s *streak) add(sent time.Time, least int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.Before(s.last) {
		return 0
	}
	s.n, s.last = max(s.n+1, least), time.Now()
	return s.n
}

func (s *streak) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n = 0
}

// throttles reports whether the endpoint also refuses the smallest request as one too many: then it refuses all until
// its quota is renewed, whatever their size.
func (e *endpoint) throttles(ctx context.Context) bool {
	err := e.send(ctx, []call{{method: "eth_chainId", params: []byte("[]"), result: (*scanner).skip}})
	return err != nil && classify(err) == classRate
}

// limit is between 1 and most, and below the smallest refused size.
type limit struct {
	most int

	mu      sync.Mutex
	size    int
	refusal int // the smallest refused size; 0: none
	full    int // full-size requests that succeeded since
}

func newLimit(most int) *limit { return &limit{most: most, size: most} }

func (l *limit) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// of is the maximum for this many: all of them while no size was refused, however many they become.
func (l *limit) of(all int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal == 0 {
		return max(all, l.size)
	}
	return l.size
}

// refused records that size n was refused.
func (l *limit) refused(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal, l.full = n, 0
	l.size = max(1, min(l.size, n/2))
}

// forget makes a refused size be tried again soon.
func (l *limit) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = 0
}

// stated records the limit that an endpoint states.
func (l *limit) stated(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n > 0 && n < l.size {
		l.size = n
	}
}

// granted records that size n succeeded. A refused size is tried again only after many successes: most limits
// are fixed, but some depend on the amount of data.
func (l *limit) granted(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < l.size {
		return
	}
	const patience = 64
	if l.full++; l.full >= patience {
		l.refusal, l.full = 0, 0
	}
	l.size = min(l.size+l.size/4+1, l.most)
	if l.refusal > 0 {
		l.size = max(1, min(l.size, l.refusal-1))
	}
}

var (
	suggestedRange = regexp.MustCompile(`(?:range|blocks)\W{1,3}(0x[0-9a-f]{1,16}|\d{1,19})\s?[-,]\s?(0x[0-9a-f]{1,16}|\d{1,19})`)
	suggestedSpan  = regexp.MustCompile(`(\d{1,3}(?:,\d{3})+|\d{1,9})\s?(k)?[- ]?(?:blocks?|range)|(?:range|distance|blocks|limit)[a-z ]{0,24}[:=]?\s?(\d{1,3}(?:,\d{3})+|\d{1,9})(k)?\b`)
)

// suggested is the number of blocks that an error message allows; 0: it names none.
func suggested(text string) int {
	text = strings.ToLower(text)
	if m := suggestedRange.FindStringSubmatch(text); m != nil {
		from, err1 := strconv.ParseUint(m[1], 0, 64)
		to, err2 := strconv.ParseUint(m[2], 0, 64)
		if err1 == nil && err2 == nil && to >= from && to-from < 1<<20 {
			return int(to-from) + 1
		}
	}
	m := suggestedSpan.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	digits, thousand := m[1], m[2]
	if digits == "" {
		digits, thousand = m[3], m[4]
	}
	n, err := strconv.Atoi(strings.ReplaceAll(digits, ",", ""))
	if err != nil {
		return 0
	}
	if thousand != "" {
		n *= 1000
	}
	return n
}
