package kafka

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// pipes is a network of brokers that echo, but answer nothing while they are frozen.
type pipes struct {
	mu      sync.Mutex
	frozen  map[string]chan struct{} // closed when the broker goes on
	dialed  int
	hangsUp string        // who closes each connection at once
	delay   time.Duration // of a connection, and of an answer
}

func (p *pipes) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	p.mu.Lock()
	p.dialed++
	p.mu.Unlock()
	select {
	case <-time.After(p.delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	client, server := net.Pipe()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hangsUp == addr {
		return client, server.Close()
	}
	go func() {
		defer func() { _ = server.Close() }()
		b := make([]byte, 64)
		for {
			n, err := server.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			frozen := p.frozen[addr]
			p.mu.Unlock()
			if frozen != nil {
				<-frozen
			}
			<-time.After(p.delay)
			if _, err := server.Write(b[:n]); err != nil {
				return
			}
		}
	}()
	return client, nil
}

func (p *pipes) freeze(addrs ...string) (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, addr := range addrs {
		p.frozen[addr] = make(chan struct{})
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, addr := range addrs {
			close(p.frozen[addr])
			delete(p.frozen, addr)
		}
	}
}

// request asks over a connection, as a client does, and fails if no answer comes in time.
func request(c net.Conn) error {
	<-time.After(time.Millisecond) // no two answers come at once
	if err := c.SetDeadline(time.Now().Add(silentTimeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("?")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 1))
	return err
}

// What one client finds out of a silent broker, the others need not: they go on with the rest, for as long as it is silent. Where
// nobody else answers, each asks for itself.
func TestSilentBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := &pipes{frozen: map[string]chan struct{}{}}
		cfg := DefaultConfig()
		cfg.Dial = brokers.dial
		first, second := newDialer(cfg, nil), newDialer(cfg, nil)
		defer first.kill()
		defer second.kill()
		connect := func(d *dialer, addr string) net.Conn {
			t.Helper()
			c, err := d.dial(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		silent := func(c net.Conn) {
			t.Helper()
			if err := request(c); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("a frozen broker: %v", err)
			}
		}
		refused := func(addr string) {
			t.Helper()
			began := time.Now()
			_, err := second.dial(t.Context(), "tcp", addr)
			op, ok := errors.AsType[*net.OpError](err)
			if !ok || op.Op != "dial" || op.Timeout() || time.Since(began) > 0 {
				t.Fatalf("a connection to a silent broker: %v after %v", err, time.Since(began))
			}
			if !kgo.IsRetryableBrokerErr(err) {
				t.Fatalf("the client gives up: %v", err)
			}
		}
		a, b := connect(first, "a:1"), connect(first, "b:1")
		for _, c := range []net.Conn{a, b} {
			if err := request(c); err != nil {
				t.Fatal(err)
			}
		}
		thaw := sync.OnceFunc(brokers.freeze("a:1"))
		defer thaw()
		silent(a)
		before := brokers.dialed
		for range 10 { // of which one makes somebody ask
			refused("a:1")
		}
		synctest.Wait()
		if n := brokers.dialed - before; n != 1 {
			t.Errorf("a silent broker is asked %d times at once", n)
		}
		if err := request(connect(second, "b:1")); err != nil {
			t.Fatal(err)
		}
		<-time.After(silentTimeout)
		refused("a:1")
		thaw()
		synctest.Wait() // who asks is told
		for _, addr := range []string{"a:1", "b:1"} {
			if err := request(connect(second, addr)); err != nil {
				t.Fatal(err)
			}
		}

		defer brokers.freeze("a:1", "b:1")()
		silent(connect(first, "a:1"))
		refused("a:1")
		silent(b)
		silent(connect(second, "a:1"))
	})
}

// network is two clients of one cluster of brokers.
func network(t *testing.T, brokers *pipes) (connect func(client int, addr string) (net.Conn, error)) {
	t.Helper()
	brokers.frozen = map[string]chan struct{}{}
	cfg := DefaultConfig()
	cfg.Dial = brokers.dial
	clients := []*dialer{newDialer(cfg, nil), newDialer(cfg, nil)}
	t.Cleanup(func() {
		for _, d := range clients {
			d.kill()
		}
	})
	return func(client int, addr string) (net.Conn, error) { return clients[client].dial(t.Context(), "tcp", addr) }
}

// answers requires that brokers answer a client.
func answers(t *testing.T, connect func(int, string) (net.Conn, error), client int, addrs ...string) {
	t.Helper()
	for _, addr := range addrs {
		c, err := connect(client, addr)
		if err == nil {
			err = request(c)
		}
		if err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
	}
}

// silent requires that a broker takes a connection of a client, and does not answer.
func silent(t *testing.T, connect func(int, string) (net.Conn, error), client int, addr string) {
	t.Helper()
	c, err := connect(client, addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := request(c); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

// A broker that is slow, but not too slow for a client, is let in again.
func TestSlowBrokerIsLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := &pipes{delay: silentTimeout * 7 / 10}
		connect := network(t, brokers)
		answers(t, connect, 0, "a:1")
		thaw := brokers.freeze("a:1")
		silent(t, connect, 0, "a:1")
		answers(t, connect, 0, "b:1")
		thaw()
		if _, err := connect(1, "a:1"); !errors.Is(err, errSilent) {
			t.Fatal(err)
		}
		<-time.After(dialTimeout + silentTimeout)
		answers(t, connect, 1, "a:1")
	})
}

// A client that does not want an answer any more has not found out that a broker is silent.
func TestAbandonedRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := &pipes{}
		connect := network(t, brokers)
		answers(t, connect, 0, "a:1")
		defer brokers.freeze("a:1")() // say, until the members of a group have joined
		c, err := connect(0, "a:1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 1))
			read <- err
		}()
		<-time.After(5 * silentTimeout)
		answers(t, connect, 0, "b:1")
		if err := c.SetDeadline(time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err := connect(1, "a:1"); err != nil {
			t.Fatal(err)
		}
	})
}

// A broker that answered before is no reason to avoid the one that is left: it may be gone, or the same one by another name.
func TestOnlyBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := &pipes{}
		connect := network(t, brokers)
		answers(t, connect, 0, "bootstrap:1", "a:1")
		<-time.After(time.Second)
		answers(t, connect, 0, "a:1")
		thaw := brokers.freeze("a:1")
		silent(t, connect, 0, "a:1")
		c, err := connect(1, "a:1")
		if err != nil {
			t.Fatal(err)
		}
		thaw()
		if err := request(c); err != nil {
			t.Fatal(err)
		}
	})
}

// A broker that closes each connection at once is asked by one client at a time, and nothing of that stays.
func TestBrokerThatHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := &pipes{}
		connect := network(t, brokers)
		answers(t, connect, 0, "a:1")
		thaw := brokers.freeze("a:1")
		silent(t, connect, 0, "a:1")
		answers(t, connect, 0, "b:1")
		brokers.mu.Lock()
		brokers.hangsUp = "a:1"
		brokers.mu.Unlock()
		thaw()
		before := brokers.dialed
		const tries = 20
		for range tries {
			if _, err := connect(1, "a:1"); !errors.Is(err, errSilent) {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := brokers.dialed - before; n > tries {
			t.Errorf("connected %d times", n)
		}
		brokers.mu.Lock()
		brokers.hangsUp = ""
		brokers.mu.Unlock()
		if _, err := connect(1, "a:1"); !errors.Is(err, errSilent) {
			t.Fatal(err)
		}
		synctest.Wait()
		answers(t, connect, 1, "a:1")
	})
}

// One request that takes long is no silence where others are answered meanwhile.
func TestSlowRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.answers("b:1")
		began := time.Now()
		<-time.After(silentTimeout / 2)
		c.answers("a:1")
		<-time.After(silentTimeout)
		if c.waited("a:1", began) {
			t.Error("a broker that answered is silent")
		}
	})
}

// A broker that refuses connections answers as little as a silent one, until it does.
func TestSilentBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := true
		cfg := DefaultConfig()
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			if refused {
				return nil, syscall.ECONNREFUSED
			}
			client, server := net.Pipe()
			go func() { _, _ = server.Write([]byte{1}) }()
			return client, nil
		}
		d := newDialer(cfg, nil)
		cfg.cluster.waited("b:1", time.Now())
		if _, err := d.dial(t.Context(), "tcp", "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		if got := cfg.Silent(); !slices.Equal(got, []string{"a:1", "b:1"}) {
			t.Errorf("silent: %v", got)
		}
		<-time.After(time.Second)
		refused = false
		c, err := d.dial(t.Context(), "tcp", "a:1")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if got := cfg.Silent(); !slices.Equal(got, []string{"b:1"}) {
			t.Errorf("silent, once one has answered: %v", got)
		}
	})
}
