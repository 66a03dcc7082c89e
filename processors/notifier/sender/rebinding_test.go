package sender_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/topics/polltest"
)

// names is a name server that resolves every name to the same addresses, until they are changed.
type names struct {
	mu    sync.Mutex
	to    []netip.Addr
	asked int
}

func (n *names) set(to ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = nil
	for _, a := range to {
		n.to = append(n.to, netip.MustParseAddr(a))
	}
}

// count is how often it was asked.
func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

// answer answers a query for addresses of either family.
func (n *names) answer(query []byte) ([]byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, errors.New("not one question"))
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	for _, a := range n.to {
		head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class} // to be asked again each time
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}

// resolver asks the name server, over UDP.
func (n *names) resolver(t *testing.T) *net.Resolver {
	socket, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	check(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for query := make([]byte, 1500); ; {
			size, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			if answer, err := n.answer(query[:size]); err != nil {
				t.Error(err)
			} else {
				_, _ = socket.WriteTo(answer, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

// A public name that resolves into our network is not connected to: each connection is judged by the address that it
// goes to, whatever the name resolved to before.
func TestPushRebinding(t *testing.T) {
	private, _, err := webpush.GenerateVAPIDKeys()
	check(t, err)
	var reached atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		w.Header().Set("Connection", "close") // so that the next message needs another connection
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate()) // which is for example.com too
	at, err := url.Parse(server.URL)
	check(t, err)
	dns := &names{}
	resolver := dns.resolver(t)
	b := newBrowser(t)
	push := func(allowLoopback bool) func(endpoint string) error {
		channel, err := sender.NewPush(sender.PushConfig{
			Private: private, Contact: "ops@lien.example", AllowLoopback: allowLoopback, TLS: &tls.Config{RootCAs: roots, NextProtos: []string{"http/1.1"}}, Resolver: resolver,
		})
		check(t, err)
		return func(endpoint string) error {
			return channel.Send(t.Context(), &sender.Message{
				ID: "1", To: b.subscription(endpoint), Channel: notifier.Push, Alert: notifier.Alert{Deal: &notifier.Deal{Cap: "1"}},
			})
		}
	}
	refused := func(what string, err error, forGood bool) {
		t.Helper()
		failure, ok := errors.AsType[*sender.Failure](err)
		if !ok || failure.Dead != forGood || failure.Gone || failure.Reason != "the push endpoint is not on a public host" {
			t.Errorf("%s: %v", what, err)
		}
	}
	guarded, open := push(false), push(true)

	// The name leads to the server, for whom may go there.
	dns.set("127.0.0.1")
	check(t, open("https://example.com:"+at.Port()+"/p"))
	if reached.Load() != 1 {
		t.Fatal("the name leads nowhere")
	}
	for _, private := range []string{"127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.1", "100.64.0.1", "::1", "fd00::1", "fe80::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "::ffff:0:127.0.0.1", "100::1", "5f00::1", "fec0::1", "4000::1"} {
		dns.set(private)
		refused(private, guarded("https://example.com/p"), false) // the name may be right again
	}
	dns.set("10.1.2.3", "127.0.0.1", "::1")
	refused("several", guarded("https://example.com/p"), false)
	dns.set("127.0.0.1")
	refused("the server's port", guarded("https://example.com:"+at.Port()+"/p"), true)

	dns.set("93.184.215.14")
	refused("another port of a public host", guarded("https://example.com:22/p"), true)

	// The name was good when it was first connected to, and leads elsewhere now.
	dns.set("10.1.2.3")
	asked := dns.count()
	refused("rebound", open("https://example.com:"+at.Port()+"/p"), true)
	if dns.count() == asked {
		t.Error("the name was not resolved again")
	}
	if reached.Load() != 1 {
		t.Errorf("the server was reached %d times", reached.Load())
	}
}

// The owner of a domain can have any number of hosts: connections to them do not stay open.
func TestPushConnections(t *testing.T) {
	private, _, err := webpush.GenerateVAPIDKeys()
	check(t, err)
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	server.Config.ConnState = func(c net.Conn, is http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if open[c] = true; is == http.StateClosed {
			delete(open, c)
		}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate()) // which is for every host of example.com
	at, err := url.Parse(server.URL)
	check(t, err)
	dns := &names{}
	dns.set("127.0.0.1")
	push, err := sender.NewPush(sender.PushConfig{
		Private: private, Contact: "ops@lien.example", AllowLoopback: true, TLS: &tls.Config{RootCAs: roots}, Resolver: dns.resolver(t),
	})
	check(t, err)
	const hosts, most = 150, 64
	b := newBrowser(t)
	for i := range hosts {
		check(t, push.Send(t.Context(), &sender.Message{
			ID: "1", To: b.subscription(fmt.Sprintf("https://h%d.example.com:%s/p", i, at.Port())), Channel: notifier.Push,
			Alert: notifier.Alert{Deal: &notifier.Deal{Cap: "1"}},
		}))
	}
	polltest.Within(t, 10*time.Second, func() error { // long before an idle one is closed for its age
		mu.Lock()
		defer mu.Unlock()
		if len(open) > most {
			return fmt.Errorf("%d connections are open", len(open))
		}
		return nil
	})
}
