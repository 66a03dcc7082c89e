package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// BenchmarkChain compares the whole chain, with an answer made for each request and with one that is kept, with a
// bare handler that writes the same bytes, over 16 connections of the loopback, for the sizes of one deal, ten and
// fifty.
func BenchmarkChain(b *testing.B) {
	for _, size := range []int{1 << 10, 10 << 10, 50 << 10} {
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = typeJSON
			w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
			_, _ = w.Write(body)
		})
		handle := text(string(body))
		core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zap.InfoLevel)
		api := New(DefaultConfig(":0"), Options{
			Service: "bench", Logger: zap.New(core), Registerer: prometheus.NewRegistry(),
			Routes: []Route{get("/deals/{id}", text("")), get("/listings", handle, "lane", "sort", "limit", "cursor")},
		})
		kept := New(DefaultConfig(":0"), Options{
			Service: "bench", Logger: zap.New(core), Registerer: prometheus.NewRegistry(),
			Routes: []Route{get("/listings", func(ctx context.Context, req *Request, res *Response) error {
				res.FreshWhile = always
				return handle(ctx, req, res)
			}, "lane", "sort", "limit", "cursor")},
		})
		for name, handler := range map[string]http.Handler{"bare": bare, "chain": api, "kept": kept} {
			b.Run(name+"/"+strconv.Itoa(size>>10)+"KiB", func(b *testing.B) { load(b, handler) })
			b.Run(name+"/"+strconv.Itoa(size>>10)+"KiB/direct", func(b *testing.B) { direct(b, handler) })
		}
	}
}

func load(b *testing.B, handler http.Handler) {
	const connections = 16
	server := httptest.NewServer(handler)
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	b.SetParallelism(connections / max(1, min(connections, 2)))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, _ := http.NewRequestWithContext(b.Context(), http.MethodGet, server.URL+"/listings?sort=cap&limit=50", http.NoBody)
			resp, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	})
}

// direct measures the handler alone, without a connection.
func direct(b *testing.B, handler http.Handler) {
	r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/listings?sort=cap&limit=50", http.NoBody)
	b.ReportAllocs()
	for b.Loop() {
		handler.ServeHTTP(&discard{header: make(http.Header, 16)}, r)
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
