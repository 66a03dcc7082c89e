package httpapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// from asks as a client at an address would.
func from(a *API, remote string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", http.NoBody)
	r.RemoteAddr = remote
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

func TestRateIsOfEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := newAPI(t, func(c *Config) { c.Client.Rate, c.Client.Burst = 0.1, 3 }, get("/", text("{}")))
		ask := func(remote string, want ...int) {
			t.Helper()
			for i, status := range want {
				w := from(a, remote)
				if w.Code != status || (w.Header().Get("Retry-After") == "") != (status == 200) {
					t.Errorf("%s, request %d: %d, Retry-After %q, want %d", remote, i, w.Code, w.Header().Get("Retry-After"), status)
				}
			}
		}
		ask("192.0.2.1:1000", 200, 200, 200, 429, 429)
		ask("192.0.2.1:1001", 429)                // another connection is no other client
		ask("[::ffff:192.0.2.1]:1002", 429)       // nor is another spelling
		ask("192.0.2.2:1000", 200, 200, 200, 429) // whom it does not touch
		ask("[2001:db8::1]:1000", 200, 200, 200, 429)
		ask("[2001:db8::ffff]:1000", 429) // of the same /64
		ask("[2001:db8:0:1::1]:1000", 200)
		ask("127.0.0.1:1000", 200, 200, 200, 200, 200)
		<-time.After(20 * time.Second) // virtual time
		ask("192.0.2.1:1000", 200, 200, 429)
		if code, message := errorOf(t, from(a, "192.0.2.1:1000")); code != "RATE_LIMITED" || message == "" {
			t.Errorf("refused with %s %q", code, message)
		}
	})
}

// Only who comes by a trusted proxy is believed to be somebody else, and only as far as proxies say so.
func TestClientBehindProxies(t *testing.T) {
	c := newClients(ClientLimits{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, 0)
	for _, test := range []struct {
		remote    string
		forwarded []string
		want      string
	}{
		{"192.0.2.1:1", []string{"198.51.100.7"}, "192.0.2.1"},
		{"10.1.1.1:1", nil, "10.1.1.1"},
		{"10.1.1.1:1", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.1.1.1:1", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"10.1.1.1:1", []string{"203.0.113.9, 198.51.100.7, 10.2.2.2"}, "198.51.100.7"},
		{"10.1.1.1:1", []string{"203.0.113.9", "198.51.100.7"}, "198.51.100.7"},
		{"10.1.1.1:1", []string{"203.0.113.9, nonsense"}, "10.1.1.1"},
		{"10.1.1.1:1", []string{"10.9.9.9"}, "10.9.9.9"},
		{"10.1.1.1:1", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		{"10.1.1.1:1", []string{"[2001:db8::7]:4711"}, "2001:db8::"},
		{"10.1.1.1:1", []string{"[2001:db8::7]"}, "2001:db8::"},
		{"10.1.1.1:1", []string{"127.0.0.1, 10.2.2.2"}, "10.2.2.2"}, // this machine has no limits
		{"10.1.1.1:1", []string{"::1"}, "10.1.1.1"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = test.remote
		r.Header["X-Forwarded-For"] = test.forwarded
		if got := c.addrOf(r); got.String() != test.want {
			t.Errorf("%s with %q: %s, want %s", test.remote, test.forwarded, got, test.want)
		}
	}
}

// A household has 256 clients of an IPv6 /64 each, or as many as a /48 has: all of them together are as four.
func TestAHouseholdIsAFewClients(t *testing.T) {
	c := newClients(ClientLimits{MaxConnections: 2, MaxInFlight: 3, MaxStreams: 2, MaxReads: 1, MaxUnsentBytes: 1, Share: 0.1, Rate: 0.001, Burst: 4}, 0)
	enter := func(remote string) *client {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = remote
		cl, _, err := c.enter(r)
		if (err == nil) != (cl != nil) {
			t.Fatalf("%s: %v without an error, or %v", remote, cl, err)
		}
		return cl
	}
	neighbour := func(i int) string { return fmt.Sprintf("[2001:db8:1:%x::1]:1", i) }
	var inside []*client
	for i := range 2 * perNetwork {
		for range 3 {
			if cl := enter(neighbour(i)); cl != nil {
				inside = append(inside, cl)
			}
		}
	}
	if len(inside) != 3*perNetwork {
		t.Fatalf("%d requests of a household are in flight, want %d", len(inside), 3*perNetwork)
	}
	other := enter("[2001:db8:2::1]:1")
	if other == nil || enter("192.0.2.1:1") == nil {
		t.Fatal("others are refused beside it")
	}
	streams := 0
	for _, cl := range inside {
		if c.enterStream(cl) == nil {
			streams++
		}
	}
	if streams != 2*perNetwork {
		t.Errorf("%d streams of a household, want %d", streams, 2*perNetwork)
	}
	inside[0].worked(time.Second) // which counts as 100 ms, of each
	if at := inside[3]; !at.hasBudget() != (at.network.Load().work.Tokens() < 0) || inside[0].hasBudget() {
		t.Errorf("the household's work does not count")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if other.read(ctx) == nil {
		t.Error("a read without a context that lasts")
	}
	if err := other.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	other.done()
	for _, cl := range inside {
		c.leave(cl)
	}
	if network := inside[0].network.Load(); network.inFlight != 0 || network.streams != 2*perNetwork {
		t.Errorf("%d in flight and %d streams are left", network.inFlight, network.streams)
	}
	l := limitListener(nil, &c.limits)
	taken := 0
	for i := range 2 * perNetwork {
		for range 3 {
			if l.take(clientAddr(netip.MustParseAddrPort(neighbour(i)).Addr())) {
				taken++
			}
		}
	}
	if taken != 2*perNetwork || !l.take(netip.MustParseAddr("192.0.2.1")) {
		t.Errorf("%d connections of a household, want %d", taken, 2*perNetwork)
	}
}

// Refusals are held back on few connections: a proxy has only so many, for all its clients.
func TestHeldRefusalsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each, all = 16, 100
		a, _, _ := newAPI(t, func(c *Config) {
			c.MaxConnections, c.Client.MaxConnections, c.Client.Rate, c.Client.Burst = 4*all, each, 0.001, 1
		}, get("/", text("{}")))
		var atOnce, later atomic.Int64
		for i := range 10 {
			remote := fmt.Sprintf("192.0.2.%d:1", i)
			from(a, remote)
			for range 2 * each {
				go func() {
					began := time.Now()
					if w := from(a, remote); w.Code != http.StatusTooManyRequests {
						t.Errorf("%d", w.Code)
					}
					if time.Since(began) == 0 {
						atOnce.Add(1)
					} else {
						later.Add(1)
					}
				}()
			}
			synctest.Wait()
			if held, most := (i+1)*2*each-int(atOnce.Load()), min((i+1)*each, all); held != most {
				t.Fatalf("%d refusals of %d clients are held back, want %d", held, i+1, most)
			}
		}
		<-time.After(maxRefusalPause) // virtual time
		synctest.Wait()
		if later.Load() != all || a.clients.held != 0 {
			t.Errorf("%d came later, %d are held", later.Load(), a.clients.held)
		}
	})
}

// One client that holds all it may leaves others what they need.
func TestInFlightIsOfEachClient(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	a, _, _ := newAPI(t, func(c *Config) { c.Client.MaxInFlight, c.Client.MaxReads = 2, 2 }, get("/", func(context.Context, *Request, *Response) error {
		entered <- struct{}{}
		<-leave
		return nil
	}))
	statuses := make(chan int)
	for range 2 {
		go func() { statuses <- from(a, "192.0.2.1:1").Code }()
		<-entered
	}
	if w := from(a, "192.0.2.1:2"); w.Code != http.StatusTooManyRequests {
		t.Errorf("a third at once: %d", w.Code)
	}
	go func() { statuses <- from(a, "192.0.2.2:1").Code }()
	<-entered
	close(leave)
	for range 3 {
		if status := <-statuses; status != http.StatusOK {
			t.Errorf("within the limit: %d", status)
		}
	}
	go func() { <-entered }()
	if w := from(a, "192.0.2.1:2"); w.Code != http.StatusOK {
		t.Errorf("after they ended: %d", w.Code)
	}
}

// However many clients come, what is known of them is bounded, and who is limited stays so.
func TestClientsAreBounded(t *testing.T) {
	c := newClients(ClientLimits{MaxInFlight: 1, MaxStreams: 1, Rate: 1e-9, Burst: 1}, 0)
	request := func(i int) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = fmt.Sprintf("[2001:%x:%x::1]:1", 0xdb8+i>>16, i&0xffff) // of a network each
		return r
	}
	for i := range maxClients + 10 {
		cl, _, err := c.enter(request(i))
		if i < maxClients && err != nil {
			t.Fatal(err)
		}
		c.leave(cl)
	}
	if len(c.known) > maxClients || len(c.networks.known) > maxClients {
		t.Errorf("%d clients of %d networks are known", len(c.known), len(c.networks.known))
	}
	if _, _, err := c.enter(request(1)); err == nil {
		t.Error("a client is no longer limited once others came")
	}
}

// Who keeps handlers busy gets his share of a core and no more; whose answers cost little, or who asks now and then, waits
// for nothing.
func TestWorkIsOfEachClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := map[string]time.Duration{"/": 10 * time.Millisecond, "/little": 100 * time.Microsecond, "/waits": time.Second}
		var routes []Route
		for path, takes := range work {
			routes = append(routes, get(path, func(context.Context, *Request, *Response) error {
				<-time.After(takes) // virtual time
				return nil
			}))
		}
		a, _, _ := newAPI(t, func(c *Config) { c.Client.MaxReads, c.Client.Share, c.Client.Rate = 1, 0.125, 0 }, routes...)
		ask := func(remote, path string) (took time.Duration) {
			began := time.Now()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			r.RemoteAddr = remote
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("%s: %d", path, w.Code)
			}
			return time.Since(began)
		}
		// during asks one after another for so long.
		during := func(remote, path string, span time.Duration) (n int) {
			for began := time.Now(); time.Since(began) < span; n++ {
				ask(remote, path)
			}
			return n
		}
		if n := during("192.0.2.1:1", "/", 8*time.Second); n < 100 || n > 115 { // a second of work, and workBurst
			t.Errorf("%d handlers of 10 ms in 8 s", n)
		}
		if took := ask("192.0.2.2:1", "/"); took != work["/"] {
			t.Errorf("another client waits: %v", took)
		}
		if n := during("192.0.2.3:1", "/little", time.Second); n < 1150 { // 125 ms and workBurst, of 100 us and answerWork each
			t.Errorf("%d handlers of 100 us in a second", n)
		}
		for range 5 {
			if took := ask("192.0.2.4:1", "/waits"); took > work["/waits"] {
				t.Errorf("a client whose answers wait for others waits: %v", took)
			}
			<-time.After(time.Second)
		}
		if took := ask("127.0.0.1:1", "/"); took != work["/"] || during("127.0.0.1:1", "/", time.Second) != 100 {
			t.Error("this machine is limited")
		}
	})
}

// What costs nothing to compute is work, too: to write an answer from the cache.
func TestCachedAnswersAreWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := strings.Repeat("x", answerBytes)
		a, _, _ := newAPI(t, func(c *Config) { c.Client.Share, c.Client.Rate = 0.125, 0 }, get("/", while(always, new(atomic.Int64), func() string { return body })))
		took := func(remote string, n int) time.Duration {
			began := time.Now()
			for range n {
				if w := from(a, remote); w.Code != http.StatusOK {
					t.Fatalf("%d", w.Code)
				}
			}
			return time.Since(began)
		}
		if took := took("192.0.2.1:1", 400); took > 0 {
			t.Errorf("a client that asks now and then waits for %s", took)
		}
		if took, least := took("192.0.2.1:1", 2000), 8*(2000*2*answerWork-workBurst); took < least*9/10 {
			t.Errorf("2,000 answers from the cache took %s, not %s", took, least)
		}
		if took := took("192.0.2.2:1", 1) + took("127.0.0.1:1", 2000); took > 0 {
			t.Errorf("others wait for %s", took)
		}
	})
}

// A client that asks without a pause gets no more cache entries than it had before, and those are kept up to date.
func TestCacheIsOfModestClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		fresh, block := true, "1"
		page := while(func() bool { return fresh }, &asked, func() string { return strings.Repeat(block, 10<<10) })
		a, _, _ := newAPI(t, func(c *Config) {
			c.MaxCacheBytes, c.Client.Share, c.Client.Rate = 4<<20, 0.125, 0
		}, get("/{what}", func(ctx context.Context, req *Request, res *Response) error {
			<-time.After(time.Millisecond) // virtual time
			return page(ctx, req, res)
		}, "limit"))
		// made asks and reports how many handlers that took.
		made := func(remote, path string) int64 {
			t.Helper()
			before := asked.Load()
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			r.RemoteAddr = remote
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), block) {
				t.Fatalf("%s %s: %d %.9s at block %s", remote, path, w.Code, w.Body, block)
			}
			return asked.Load() - before
		}
		const honest, hostile = "192.0.2.1:1", "192.0.2.2:1"
		if n := made(honest, "/popular") + made(honest, "/popular"); n != 1 {
			t.Fatalf("%d handlers for one page", n)
		}
		for i := range 1000 { // of 22 KiB in the cache
			made(hostile, fmt.Sprint("/any?limit=", i))
		}
		if n := made(honest, "/popular"); n != 0 {
			t.Error("a client without a pause pushed another one's page out of the cache")
		}
		fresh, block = false, "2"
		if n := made(hostile, "/popular"); n != 1 {
			t.Errorf("%d handlers for an outdated page", n)
		}
		fresh = true
		if n := made(honest, "/popular"); n != 0 {
			t.Errorf("%d handlers for a page that was brought up to date", n)
		}
	})
}

// Who is refused waits for that, and takes nothing from the others meanwhile.
func TestRefusalsAreHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := newAPI(t, func(c *Config) { c.MaxInFlight, c.Client.Rate, c.Client.Burst = 1, 0.001, 1 }, get("/", text("{}")))
		from(a, "192.0.2.1:1")
		began, refused := time.Now(), make(chan int)
		for range 2 {
			go func() { refused <- from(a, "192.0.2.1:1").Code }()
			synctest.Wait() // both at once would be more than one in flight
		}
		if w := from(a, "192.0.2.2:1"); w.Code != http.StatusOK || time.Since(began) > 0 {
			t.Errorf("another client: %d after %s", w.Code, time.Since(began))
		}
		for range 2 {
			if status := <-refused; status != http.StatusTooManyRequests {
				t.Errorf("refused with %d", status)
			}
		}
		if took := time.Since(began); took < refusalPause {
			t.Errorf("refused after %s", took)
		}
	})
}

// However many connections ask again as soon as they are refused, few refusals are written.
func TestRefusalsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := newAPI(t, func(c *Config) { c.Client.Rate, c.Client.Burst = 1e-9, 1 }, get("/", text("{}")))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // virtual time
		defer cancel()
		var refused atomic.Int64
		var asking sync.WaitGroup
		for range 300 {
			asking.Go(func() {
				for ctx.Err() == nil {
					if from(a, "192.0.2.1:1").Code == http.StatusTooManyRequests {
						refused.Add(1)
					}
				}
			})
		}
		asking.Wait()
		if n := refused.Load(); n < 2500 || n > 3600 { // each connection hears of one in maxRefusalPause
			t.Errorf("%d refusals in 10 s over 300 connections", n)
		}
		if w := from(a, "192.0.2.2:1"); w.Code != http.StatusOK {
			t.Errorf("another client: %d", w.Code)
		}
	})
}

// listener is one whose connections come from where the test says.
type listener struct{ conns chan net.Conn }

func (l listener) Accept() (net.Conn, error) { return <-l.conns, nil }
func (listener) Close() error                { return nil }
func (listener) Addr() net.Addr              { return nil }

type remoteConn struct {
	net.Conn
	addr net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.addr }

func TestConnectionsAreOfEachClient(t *testing.T) {
	conns := make(chan net.Conn, 8)
	l := limitListener(listener{conns}, &ClientLimits{MaxConnections: 1})
	dial := func(from string) (other net.Conn) {
		ours, theirs := net.Pipe()
		conns <- remoteConn{ours, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))}
		return theirs
	}
	accept := func() net.Conn {
		t.Helper()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	dial("192.0.2.1:1")
	first := accept()
	second := dial("192.0.2.1:2")
	dial("192.0.2.2:1")
	if got := accept().RemoteAddr().String(); got != "192.0.2.2:1" {
		t.Errorf("accepted %s", got)
	}
	if _, err := second.Read(make([]byte, 1)); err == nil {
		t.Error("a second connection of one client is open")
	}
	_ = first.Close()
	_ = first.Close() // which net/http may
	dial("192.0.2.1:3")
	if got := accept().RemoteAddr().String(); got != "192.0.2.1:3" {
		t.Errorf("accepted %s", got)
	}
}

// What one client asks for is computed in turn: others do not wait for it, and who waits too long is told so.
func TestReadsOfAClientWaitTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under, most, leave := atomic.Int64{}, atomic.Int64{}, make(chan struct{})
		a, _, _ := newAPI(t, func(c *Config) { c.Client.MaxReads = 1 }, get("/", func(context.Context, *Request, *Response) error {
			most.Store(max(most.Load(), under.Add(1)))
			<-leave
			under.Add(-1)
			return nil
		}))
		statuses := make(chan int, 8)
		ask := func(remote string) { statuses <- from(a, remote).Code }
		for range 3 {
			go ask("192.0.2.1:1")
		}
		synctest.Wait()
		if n := under.Load(); n != 1 {
			t.Fatalf("%d reads of one client are computed", n)
		}
		go ask("192.0.2.2:1")
		synctest.Wait()
		if n := under.Load(); n != 2 {
			t.Fatalf("another client waits: %d are computed", n)
		}
		leave <- struct{}{}
		leave <- struct{}{}
		synctest.Wait()
		<-time.After(2 * a.cfg.RequestTimeout) // the one that computes goes on, the one that waits does not
		close(leave)
		synctest.Wait()
		close(statuses)
		count := map[int]int{}
		for status := range statuses {
			count[status]++
		}
		if count[http.StatusOK] != 3 || count[http.StatusTooManyRequests] != 1 || most.Load() != 2 {
			t.Errorf("%v, %d at once", count, most.Load())
		}
	})
}
