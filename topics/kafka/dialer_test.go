package kafka

import (
	"context"
	"errors"
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

// Nobody waits for a connection of a client that has ended, however long its broker does not answer.
func TestDialsEndWithTheirClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Dial = (&pipes{delay: time.Hour}).dial
		d := newDialer(cfg, nil)
		dialed := make(chan error, 1)
		go func() {
			_, err := d.dial(t.Context(), "tcp", "mute")
			dialed <- err
		}()
		synctest.Wait()
		began := time.Now()
		d.kill()
		if err := <-dialed; !errors.Is(err, ErrKilled) || time.Since(began) > 0 {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		if silent := (Config{cluster: d.cluster}).Silent(); len(silent) > 0 {
			t.Errorf("%s is taken for silent", silent)
		}
	})
}
