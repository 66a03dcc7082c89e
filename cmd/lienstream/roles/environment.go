package roles

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Environment is the operating system as a process sees it: the network, files, the host name and output. Time
// is not part of it: testing/synctest replaces the clock of the whole process.
type Environment struct {
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	Listen   func(ctx context.Context, network, addr string) (net.Listener, error)
	FS       vfs.FS
	Hostname func() (string, error)
	Stdout   io.Writer
	Stderr   io.Writer // the log
	Shared   bool      // other processes share this Go runtime: do not change its memory limits
}

// System is the environment of the machine.
func System() Environment {
	dialer := &net.Dialer{KeepAlive: 15 * time.Second}
	return Environment{
		Dial: dialer.DialContext, Listen: new(net.ListenConfig).Listen,
		FS: vfs.Default, Hostname: os.Hostname, Stdout: os.Stdout, Stderr: os.Stderr,
	}
}

// readFile reads a small file, such as a secret or a deployment.
func (e Environment) readFile(path string) ([]byte, error) {
	f, err := e.FS.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}
