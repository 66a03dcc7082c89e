package hotcache_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lienstream/lienstream/processors/market/hotcache"
)

// A host is reached through dial alone: go-redis would ask the machine's DNS for it besides.
func TestDialAloneFindsTheHost(t *testing.T) {
	server := miniredis.RunT(t)
	var asked atomic.Bool
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		asked.Store(true)
		return nil, errors.New("there is no DNS")
	}}
	options, err := hotcache.Options("redis://redis.example:6379", func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", server.Addr())
	})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if asked.Load() {
		t.Error("the machine's DNS was asked")
	}
}
