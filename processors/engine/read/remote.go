package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/lienstream/lienstream/processors/engine/wire"
)

// remote answers by asking another node.
type remote struct {
	addr    string // host:port
	client  *http.Client
	dial    dial
	timeout time.Duration
	token   string // sent with every request; empty: none
	links   links
}

type dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// inTime bounds how long a connection may take; nil: over the machine's network.
func inTime(open dial) dial {
	if open == nil {
		open = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext //nolint:forbidigo // the default dialer
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return open(ctx, network, addr)
	}
}

// newClient makes the HTTP client that all remotes of a router share. Connections are kept alive, so a read is
// a single round trip.
func newClient(open dial) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: open, MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second}}
}

func (n *remote) ask(ctx context.Context, r *nodeRequest) (*Response, error) {
	payload, err := wire.Append(nil, r.query)
	if err != nil {
		return nil, fmt.Errorf("encode query: %w", err)
	}
	r.Payload = payload
	body, err := encodeRequest(r)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	if r.op != nil && r.op.brief && len(body) <= maxBriefBytes {
		if a, err := n.askBriefly(ctx, body); !errors.Is(err, errPlain) {
			return a, err
		}
	}
	return n.post(ctx, body)
}

// post asks by HTTP.
func (n *remote) post(ctx context.Context, body []byte) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.addr+Path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("read from %s: %w", n.addr, err)
	}
	req.Header.Set("Content-Type", contentType)
	if n.token != "" {
		req.Header.Set(authorizationHeader, bearer+n.token)
	}
	resp, err := n.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason))
		lacking := int64(-1)
		if p, err := strconv.ParseInt(resp.Header.Get(lackingHeader), 10, 32); err == nil {
			lacking = p
		}
		return nil, n.refused(resp.StatusCode, int32(lacking), reason)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, err)
	}
	a, err := decodeResponse(raw)
	if err != nil {
		return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, err)
	}
	return a, nil
}

// maxReason bounds what is told of why a node refused.
const maxReason = 512

// refused is the error of a response that is none.
func (n *remote) refused(status int, lacking int32, reason []byte) error {
	if status == http.StatusGone {
		return fmt.Errorf("read from %s: %w", n.addr, ErrExpired)
	}
	reason = bytes.TrimSpace(reason[:min(len(reason), maxReason)])
	err := fmt.Errorf("read from %s: %w: %d %s: %s", n.addr, ErrUnavailable, status, http.StatusText(status), reason)
	if lacking >= 0 {
		return &lackingError{lacking, err}
	}
	return err
}
