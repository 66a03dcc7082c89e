package rpc

import "syscall"

// quickAck acknowledges what was read of a TCP connection.
func quickAck(fd uintptr) {
	_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
}
