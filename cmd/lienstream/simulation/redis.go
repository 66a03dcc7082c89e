package simulation

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// redisHost is where Redis is, in the runs that have one.
const redisHost = "redis"

// startRedis runs a Redis on a host of its own.
func (s *system) startRedis() error {
	l, err := s.net.listen(redisHost + ":6379")
	if err != nil {
		return err
	}
	s.redis, s.redisPort = miniredis.NewMiniRedis(), l
	first, err := s.redis.Dial() // starts it without a port of the machine
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.redis.Server().ServeConn(c)
		}
	}()
	return first.Close()
}

// closeRedis ends it, if there is one.
func (s *system) closeRedis() error {
	if s.redis == nil {
		return nil
	}
	err := s.redisPort.Close()
	s.redis.Close()
	return err
}

// slowRedis is more than a reader waits for, at the most.
const slowRedis = 100 * time.Millisecond

// redisKinds are the faults of Redis. Whoever reads must not notice.
func redisKinds() []faultKind {
	return []faultKind{
		{"redis is away", 3, "", func(_ context.Context, r *run, f fault) error { return r.hold(redisHost, f.hosts, true, f.lasts) }},
		{"redis is slow", 3, "", func(_ context.Context, r *run, f fault) error {
			r.net.slow(redisHost, slowRedis)
			time.Sleep(f.lasts)
			r.net.slow(redisHost, 0)
			return nil
		}},
		{"redis refuses", 2, "", func(_ context.Context, r *run, f fault) error {
			r.redis.SetError("OOM command not allowed when used memory > 'maxmemory'.")
			time.Sleep(f.lasts)
			r.redis.SetError("")
			return nil
		}},
		// As after a restart without a file, or as a failover to a replica that has nothing yet.
		{"redis is empty", 4, "", func(_ context.Context, r *run, f fault) error {
			if f.seed%2 == 0 {
				r.net.reset(redisHost)
			}
			r.redis.FlushAll()
			return nil
		}},
	}
}

// cached counts the answers that serving nodes had from Redis: how much the others say of it.
func (r *run) cached(ctx context.Context, servings []string) (hits int, err error) {
	client := &http.Client{Transport: &http.Transport{DialContext: r.net.dialer(scraper)}}
	defer client.CloseIdleConnections()
	for _, host := range servings {
		_, body, err := r.ops(ctx, client, host, "/metrics")
		if err != nil {
			return 0, err
		}
		for _, of := range []string{"", "pool_"} {
			_, count, _ := strings.Cut(string(body), "\nlienstream_hotcache_"+of+"hits_total ")
			count, _, _ = strings.Cut(count, "\n")
			n, err := strconv.ParseFloat(count, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: metrics of the hot cache: %w", host, err)
			}
			hits += int(n)
		}
	}
	return hits, nil
}
