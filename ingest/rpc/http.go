package rpc

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"
)

// newHTTPClient makes the HTTP client of an endpoint. It does not compress for a node on this machine. It follows no
// redirect: the operator, not a provider, decides where requests go.
func newHTTPClient(host string, cfg Config) *http.Client {
	ip := net.ParseIP(host)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{CheckRedirect: stay, Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         cfg.dial(),
		TLSHandshakeTimeout: cfg.Timeout,
		MaxIdleConnsPerHost: cfg.Parallel,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
		DisableCompression:  host == "localhost" || ip.IsLoopback(),
	}}
}

// dial opens connections within the request timeout.
func (c Config) dial() func(context.Context, string, string) (net.Conn, error) {
	to := c.Dial
	if to == nil {
		to = (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext //nolint:forbidigo // the default dialer
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		return to(ctx, network, addr)
	}
}

// post sends a request and limits the size of its response; release frees the response's buffer.
func (e *endpoint) post(ctx context.Context, body []byte, most int) (answer []byte, release func(), err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	buf := newBuffer()
	err = buf.read(ctx, e, resp.Body, resp.ContentLength, most)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = statusOf(resp, buf.Bytes())
	}
	if err != nil {
		buf.release()
		return nil, nil, err
	}
	return buf.Bytes(), buf.release, nil
}

// statusOf is the error of a response with another status than 200. Some providers send a JSON-RPC error with
// it, which is more specific.
func statusOf(resp *http.Response, body []byte) error {
	err := &statusError{status: resp.StatusCode, retry: retryAfter(resp.Header.Get("Retry-After"), time.Now()), body: clip(string(body))}
	if resp.StatusCode != http.StatusTooManyRequests {
		if _, answer, e := decodeReply(&scanner{b: body}, (*scanner).skip); e == nil && answer != nil {
			return answer
		}
	}
	return err
}

// retryAfter parses the header: seconds or a date.
func retryAfter(v string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}
