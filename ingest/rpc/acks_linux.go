package rpc

import "syscall"

// quickAck acknowledges the data that a TCP connection has received.
func quickAck(fd uintptr) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
}
