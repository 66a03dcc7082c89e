package httpapi

import (
	"net"
	"net/netip"
	"sync"
)

// limitedListener closes excess connections of a client.
type limitedListener struct {
	net.Listener
	limits   *ClientLimits
	open     *Slots[netip.Addr]
	networks *Slots[netip.Prefix]
}

func limitListener(l net.Listener, limits *ClientLimits) *limitedListener {
	return &limitedListener{Listener: l, limits: limits, open: NewSlots[netip.Addr](limits.MaxConnections, 0), networks: NewSlots[netip.Prefix](limits.network().MaxConnections, 0)}
}

// Accept returns the next connection that is within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err != nil || peer.Addr().IsLoopback() || trusted(l.limits.TrustedProxies, peer.Addr()) {
			return conn, nil //nolint:nilerr // not an IP address, so not limited
		}
		addr := clientAddr(peer.Addr())
		if l.take(addr) {
			return &limitedConn{Conn: conn, leave: sync.OnceFunc(func() { l.release(addr) })}, nil
		}
		_ = conn.Close()
	}
}

func (l *limitedListener) take(addr netip.Addr) bool {
	if !l.open.Take(addr) {
		return false
	}
	if addr.Is6() && !l.networks.Take(Network(addr)) {
		l.open.Release(addr)
		return false
	}
	return true
}

func (l *limitedListener) release(addr netip.Addr) {
	l.open.Release(addr)
	if addr.Is6() {
		l.networks.Release(Network(addr))
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
