package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// reply is what a serving node answered.
type reply struct {
	status       int
	number, hash string
	body         string
}

// answered reports whether a reply is an answer as of its block: a price that is refused is one.
func (r *reply) answered() bool {
	return r.status < http.StatusInternalServerError || strings.Contains(r.body, "PRICE_UNRELIABLE")
}

func (s *system) get(ctx context.Context, host, path string) (reply, error) {
	at := host + ":80"
	method, given := http.MethodGet, ""
	rest, ofAgent := strings.CutPrefix(path, agentPath)
	if ofAgent {
		at, path = host+agentPort, rest
		if rest, body, posts := strings.Cut(path, " "); posts {
			method, path, given = http.MethodPost, rest, body
		}
	} else if rest, isValue := strings.CutPrefix(path, valuationPath); isValue {
		at, path = host+valuationPort, rest
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+at+path, strings.NewReader(given))
	if err != nil {
		return reply{}, err
	}
	if given != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := s.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if ofAgent {
		judged, number, hash := agentAnswer(string(body))
		return reply{res.StatusCode, number, hash, judged}, err
	}
	return reply{res.StatusCode, res.Header.Get("x-indexed-block"), res.Header.Get("x-indexed-block-hash"), string(body)}, err
}

// settleEvery is how long settle waits between two questions.
const settleEvery = 50 * time.Millisecond

// settle waits until a serving node answers as of the chain's head.
func (s *system) settle(ctx context.Context, host string, within time.Duration) error {
	want := s.chain.head().Hex()
	for end := time.Now().Add(within); ; time.Sleep(settleEvery) {
		r, err := s.get(ctx, host, "/deals?limit=1")
		if err == nil && r.status == http.StatusOK && r.hash == want {
			return nil
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("not at the head %s after %s: %d as of %s: %.200s", want, within, r.status, r.number, r.body), err)
		}
	}
}
