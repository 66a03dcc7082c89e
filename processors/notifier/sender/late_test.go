package sender_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lienstream/lienstream/processors/notifier/sender"
)

// piped is the email channel to a mail server, by a clock that does not wait.
func piped(t *testing.T, reply func(command string) string) *sender.Email {
	t.Helper()
	email, err := sender.NewEmail(sender.EmailConfig{
		Host: "127.0.0.1", Port: 25, From: "alerts@lien.example", Plain: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				converse(theirs, reply)
			}()
			t.Cleanup(func() { <-done })
			return ours, nil
		},
	}, nil)
	check(t, err)
	return email
}

// A mail of staff waits as long as an alert for the server's answer: a member of staff who is told that it was not sent
// would send another.
func TestALetterThatIsTakenLate(t *testing.T) {
	for takes, want := range map[time.Duration]bool{9 * time.Minute: true, 11 * time.Minute: false} {
		synctest.Test(t, func(t *testing.T) {
			email := piped(t, func(command string) string {
				if command == "." {
					<-time.After(takes)
				}
				return replies[command]
			})
			if err := email.Write(t.Context(), "ann@example.com", "An answer", "to your report"); (err == nil) != want {
				t.Errorf("taken after %s: %v", takes, err)
			}
		})
	}
}
