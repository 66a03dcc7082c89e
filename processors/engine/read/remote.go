package read

import (
	"bytes"
	"context"
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
	timeout time.Duration
	token   string // sent with every request; empty: none
}

// newClient makes the HTTP client that all remotes of a router share. Connections are kept alive, so a read is
// a single round trip.
func newClient(dial func(context.Context, string, string) (net.Conn, error)) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext //nolint:forbidigo // the default dialer
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return dial(ctx, network, addr)
		},
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     90 * time.Second,
	}}
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
	if resp.StatusCode == http.StatusGone {
		return nil, fmt.Errorf("read from %s: %w", n.addr, ErrExpired)
	}
	if resp.StatusCode != http.StatusOK {
		reason, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		err := fmt.Errorf("read from %s: %w: %s: %s", n.addr, ErrUnavailable, resp.Status, bytes.TrimSpace(reason))
		if p, bad := strconv.ParseInt(resp.Header.Get(lackingHeader), 10, 32); bad == nil {
			return nil, &lackingError{int32(p), err}
		}
		return nil, err
	}
	a, err := decodeResponse(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read from %s: %w: %w", n.addr, ErrUnavailable, err)
	}
	return a, nil
}
