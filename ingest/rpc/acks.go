package rpc

import (
	"context"
	"net"
	"syscall"
)

// acknowledging is a connection that acknowledges received data at once. A kernel delays acknowledgements by up to 40
// ms, and a server with Nagle's algorithm, such as anvil, holds its next small message back until then: the block
// after a response.
type acknowledging struct {
	net.Conn
	raw syscall.RawConn
}

// acknowledgeAtOnce makes a dialer's TCP connections acknowledge at once, where the system supports it.
func acknowledgeAtOnce(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		tcp, ok := c.(*net.TCPConn)
		if err != nil || !ok {
			return c, err
		}
		raw, err := tcp.SyscallConn()
		if err != nil {
			return nil, err
		}
		return &acknowledging{Conn: c, raw: raw}, nil
	}
}

// Read implements net.Conn. The kernel forgets the option, so each read sets it again.
func (c *acknowledging) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		_ = c.raw.Control(quickAck) // a failure only delays blocks
	}
	return n, err
}
