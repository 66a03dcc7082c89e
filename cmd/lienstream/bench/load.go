package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
)

// conn is a connection that sends one request after another with as little processor time as possible: the bench
// shares its cores with what it measures.
type conn struct {
	net.Conn

	in   *bufio.Reader
	host string
	out  []byte
	body []byte
}

func dial(ctx context.Context, addr string) (*conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, in: bufio.NewReaderSize(c, 64<<10), host: addr}, nil
}

var errResponse = errors.New("malformed response")

// request is what is asked for.
type request struct {
	path string
	body string // posted as JSON; empty: a GET
	or   []int  // statuses that are as good as 200
	from string // the client, as a proxy names it; empty: there is no proxy
}

func (r *request) takes(status int) bool {
	return status == http.StatusOK || slices.Contains(r.or, status)
}

// gets returns a GET of each path.
func gets(paths []string) []request {
	all := make([]request, len(paths))
	for i, path := range paths {
		all[i].path = path
	}
	return all
}

// get asks for a path. The body is valid until the next call.
func (c *conn) get(path string) (status int, body []byte, err error) {
	return c.ask(request{path: path})
}

// ask sends any request. The body is valid until the next call.
func (c *conn) ask(r request) (status int, body []byte, err error) {
	if r.body == "" {
		c.out = fmt.Appendf(c.out[:0], "GET %s HTTP/1.1\r\nHost: %s\r\n", r.path, c.host)
		if r.from != "" {
			c.out = fmt.Appendf(c.out, "X-Forwarded-For: %s\r\n", r.from)
		}
		c.out = append(c.out, "\r\n"...)
	} else {
		c.out = fmt.Appendf(c.out[:0], "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			r.path, c.host, len(r.body), r.body)
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return 0, nil, err
	}
	if _, err := c.Write(c.out); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 {
		return 0, nil, errResponse
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, errResponse
	}
	size := -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, nil, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("Content-Length")) {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, nil, errResponse
			}
		}
	}
	if size < 0 {
		return 0, nil, fmt.Errorf("%w: no length", errResponse)
	}
	if cap(c.body) < size {
		c.body = make([]byte, size)
	}
	c.body = c.body[:size]
	_, err = io.ReadFull(c.in, c.body)
	return status, c.body, err
}

// load is the responses to a number of connections.
type load struct {
	seconds   float64
	latencies []float64 // milliseconds
}

func (l *load) rate() float64 { return float64(len(l.latencies)) / l.seconds }

func (l *load) merge(o load) {
	l.seconds += o.seconds
	l.latencies = append(l.latencies, o.latencies...)
}

const connections = 16

// ask makes requests over 16 connections at once, one after another over each, and returns the latencies.
func ask(ctx context.Context, addr string, of func(ctx context.Context, conn int) iter.Seq[request]) ([]float64, error) {
	var each [connections][]float64
	g, ctx := errgroup.WithContext(ctx)
	for i := range connections {
		g.Go(func() error {
			c, err := dial(ctx, addr)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			for r := range of(ctx, i) {
				began := time.Now()
				status, body, err := c.ask(r)
				if err != nil {
					return err
				}
				if !r.takes(status) {
					return fmt.Errorf("%s: %d %s", r.path, status, body)
				}
				each[i] = append(each[i], float64(time.Since(began))/float64(time.Millisecond))
			}
			return nil
		})
	}
	err := g.Wait()
	return slices.Concat(each[:]...), err
}

// steady makes a request at every tick over each connection, until ctx ends. It returns the latencies.
func steady(ctx context.Context, addr string, every time.Duration, next func(conn int) request) ([]float64, error) {
	return ask(ctx, addr, func(ctx context.Context, conn int) iter.Seq[request] {
		return func(yield func(request) bool) {
			pause(ctx, every*time.Duration(conn)/connections) // not all at once
			tick := time.NewTicker(every)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if !yield(next(conn)) {
					return
				}
			}
		}
	})
}

// press makes requests for a turn, with one under way on each connection at all times. They begin apart from each
// other: what one was answered should not be what the next one finds in a cache.
func press(ctx context.Context, addr string, requests []request) (load, error) {
	began := time.Now()
	latencies, err := ask(ctx, addr, func(_ context.Context, conn int) iter.Seq[request] {
		return func(yield func(request) bool) {
			n := conn * max(len(requests)/connections, 1)
			for time.Since(began) < turn && yield(requests[n%len(requests)]) {
				n++
			}
		}
	})
	return load{seconds: time.Since(began).Seconds(), latencies: latencies}, err
}
