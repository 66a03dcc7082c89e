package system

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lienstream/lienstream/topics/certtest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// Redis asks for TLS and lets its user do only what docs/operations.md says: the hot cache and the shared limits work, and
// no command is denied.
func TestRedisByTLSAndACL(t *testing.T) {
	path := redisPath(t)
	doc, err := os.ReadFile(filepath.Join(repository(t), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	user := regexp.MustCompile("(?m)^user lienstream .*$").FindString(string(doc))
	if !strings.Contains(user, "PASSWORD") {
		t.Fatalf("docs/operations.md has no user of Redis: %q", user)
	}
	cert, certificate, key := certtest.New(t)
	authorities := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	authorities.AddCert(leaf)
	t.Setenv("SSL_CERT_FILE", certificate)
	addr, dir := address(t), t.TempDir()
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(dir, "redis.conf")
	text := fmt.Sprintf("port 0\ntls-port %s\nbind 127.0.0.1\ntls-cert-file %s\ntls-key-file %s\ntls-auth-clients no\nsave \"\"\ndir %s\nuser default on >admin ~* &* +@all\n%s\n",
		port, certificate, key, dir, strings.Replace(user, "PASSWORD", "secret", 1))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runRedis(t, path, conf)
	admin := redis.NewClient(&redis.Options{Addr: addr, Password: "admin", TLSConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}})
	defer func() { _ = admin.Close() }()
	polltest.Within(t, 30*time.Second, func() error { return admin.Ping(t.Context()).Err() })

	indexer, agent, ops := address(t), address(t), address(t)
	p := start(t, "up", "up", "--data-dir="+t.TempDir(), "--redis=rediss://lienstream:secret@"+addr, "--ops-addr="+ops,
		"--indexer-addr="+indexer, "--agent-addr="+agent, "--valuation-addr=127.0.0.1:0", "--support-addr="+address(t),
		"--notify-addr=127.0.0.1:0", "--payment-chain-addr=127.0.0.1:0", "--query-addr="+address(t))
	hits := regexp.MustCompile(`(?m)^lienstream_hotcache_hits_total(?:\{.*\})? [1-9]`)
	poolHits := regexp.MustCompile(`(?m)^lienstream_hotcache_pool_hits_total(?:\{.*\})? [1-9]`)
	polltest.Within(t, time.Minute, func() error {
		for _, url := range []string{"http://" + indexer + "/listings?limit=7", "http://" + indexer + "/pool"} {
			if text, status, err := fetch(t.Context(), url); err != nil || status != 200 {
				return fmt.Errorf("GET %s: %d %s: %w", url, status, text, err)
			}
		}
		metrics, _, err := fetch(t.Context(), "http://"+ops+"/metrics")
		if err != nil {
			return err
		}
		if !hits.MatchString(metrics) || !poolHits.MatchString(metrics) {
			return fmt.Errorf("nothing was answered from Redis: %s", denied(t, admin))
		}
		return nil
	})
	polltest.Within(t, 20*time.Second, func() error {
		if _, _, err := fetch(t.Context(), "http://"+agent+"/v1/capabilities"); err != nil {
			return err
		}
		if keys, err := admin.Keys(t.Context(), "rate:lienstream.*").Result(); err != nil || len(keys) == 0 {
			return fmt.Errorf("the agent's requests are not counted in Redis: %v, denied %s: %w", keys, denied(t, admin), err)
		}
		return nil
	})
	if what := denied(t, admin); len(what) > 0 {
		t.Errorf("the user of Redis may not %s", what)
	}
	if strings.Contains(p.output(), "secret") {
		t.Error("the log has the password of Redis")
	}
}

// denied is what users of Redis tried and may not.
func denied(t *testing.T, admin *redis.Client) (what []string) {
	t.Helper()
	entries, err := admin.ACLLog(t.Context(), 20).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		what = append(what, fmt.Sprintf("%s (%s)", e.Object, e.Reason))
	}
	return what
}
