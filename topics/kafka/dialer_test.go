package kafka

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A connection that has answered nothing ends with the request that it was opened for: a client that gave that up would else wait
// for its first answer. One that has answered stays.
func TestAFirstAnswerIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := &pipes{frozen: map[string]chan struct{}{}}
		defer brokers.freeze("mute")()
		cfg := DefaultConfig()
		cfg.Dial = brokers.dial
		d := newDialer(cfg, nil)
		defer d.kill()
		ctx, cancel := context.WithCancel(t.Context())
		dial := func(addr string) net.Conn {
			c, err := d.dial(ctx, "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		mute, answers := dial("mute"), dial("answers")
		if err := request(answers); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- request(mute) }()
		<-time.After(silentTimeout / 2) // it waits
		began := time.Now()
		cancel()
		if err := <-ended; err == nil || time.Since(began) > 0 {
			t.Errorf("the request ended after %s: %v", time.Since(began), err)
		}
		if err := request(answers); err != nil {
			t.Errorf("a connection that has answered: %v", err)
		}
	})
}
