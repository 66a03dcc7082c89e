package rpc

import (
	"context"
	"net"
	"syscall"
)

// acknowledging is a connection that acknowledges what it has read at once. A kernel waits up to 40 ms for something to send with the
// acknowledgement, and a server with Nagle's algorithm, as anvil, holds the next small message back until then: the block that comes
// after an answer.
type acknowledging struct {
	net.Conn
	raw syscall.RawConn
}

// acknowledgeAtOnce makes a dialer's connections acknowledge at once, where these are TCP and the system can.
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

// Read implements net.Conn. The kernel forgets the setting, so it is made with each.
func (c *acknowledging) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		_ = c.raw.Control(quickAck) // without it a block comes later
	}
	return n, err
}
