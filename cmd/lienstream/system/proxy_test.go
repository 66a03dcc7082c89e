package system

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy is a wire between two processes that a test cuts, or makes slow.
type proxy struct {
	addr   string
	target string

	mu    sync.Mutex
	conns map[net.Conn]bool
	down  bool
	delay time.Duration
}

// startProxy forwards connections on an address of its own to target.
func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String(), target: target, conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.cut()
		wg.Wait()
	})
	return p
}

func (p *proxy) serve(client net.Conn) {
	defer p.drop(client)
	if !p.hold(client) {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, time.Second)
	if err != nil {
		return
	}
	defer p.drop(server)
	if !p.hold(server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(server, client) })
	wg.Go(func() { p.copy(client, server) })
	wg.Wait()
}

// copy moves bytes one way until either end closes, and then closes both.
func (p *proxy) copy(to, from net.Conn) {
	defer p.drop(to)
	defer p.drop(from)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if d := p.slowness(); d > 0 {
				<-time.After(d)
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return // io.EOF, or the wire was cut
		}
	}
}

func (p *proxy) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		return false
	}
	p.conns[c] = true
	return true
}

func (p *proxy) drop(c io.Closer) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn, ok := c.(net.Conn); ok {
		delete(p.conns, conn)
	}
}

func (p *proxy) slowness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// cut closes every connection and accepts none until mend.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// slow delays what passes by d, each way.
func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// TestProxy: the wire carries, is cut, and carries again.
func TestProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() { // an echo
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	p := startProxy(t, l.Addr().String())
	echo := func() (net.Conn, error) {
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = c.Close() })
		return c, say(c)
	}
	c, err := echo()
	if err != nil {
		t.Fatal(err)
	}
	p.cut()
	if say(c) == nil {
		t.Error("a connection lives on behind a cut")
	}
	if _, err := echo(); err == nil {
		t.Error("a cut wire takes connections")
	}
	p.mend()
	p.slow(30 * time.Millisecond)
	began := time.Now()
	if _, err := echo(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 60*time.Millisecond {
		t.Errorf("a slow wire took %v", took)
	}
}

// say sends a byte and reads it back.
func say(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}
