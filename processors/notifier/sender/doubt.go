package sender

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// doubts are refusals that may concern us or one address: 5xx by a mail server's policy, 403 of a push service. They
// concern the address if others get our messages between one refusal and the next, several times. Otherwise all
// subscriptions would end when a relay or a provider refuses us.
type doubts struct {
	refused map[string]refusals  // by subscription
	taken   map[string]time.Time // when a server last accepted an alert, by receives; for push services see site
	logged  time.Time
}

type refusals struct {
	n    int // refusals between which others got messages
	at   time.Time
	last time.Time // of any refusal
}

// Ending a subscription takes at least 21 minutes. A server that is wrong about us for a moment may refuse any number
// of alerts: they count as one.
const (
	maxDoubts  = 8               // refusals that end a subscription
	doubtEvery = 3 * time.Minute // minimum time between two that count
	doubtLasts = 24 * time.Hour  // after this time without a refusal, earlier ones do not count
)

// subscription identifies the refused address: another address of the wallet has another time.
func (d *due) subscription() string {
	return string(binary.BigEndian.AppendUint64(d.row[:common.AddressLength+1:common.AddressLength+1], uint64(d.sub.Of())))
}

// receives identifies the server that decides: one mail domain may refuse us while others do not.
func (d *due) receives() string {
	_, domain, _ := strings.Cut(d.sub.Mask, "@") // the mask of an email address has its domain
	return d.to.Channel.String() + " " + notifier.HostName(domain)
}

// taken notes that a server accepted a message.
func (s *Sender) taken(d *due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.doubt.refused, d.subscription())
	if d.to.Stage == notifier.ToConfirm {
		return // not an alert: a server may treat requests differently, and anyone can have them sent
	}
	if d.site != nil {
		d.site.taken = time.Now()
		return
	}
	if s.doubt.taken == nil || len(s.doubt.taken) >= maxPassed {
		s.doubt.taken = map[string]time.Time{}
	}
	s.doubt.taken[d.receives()] = time.Now()
}

// doubted counts a doubtful refusal, and reports whether it concerns the address.
func (s *Sender) doubted(d *due, f *Failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.doubtful.WithLabelValues(d.to.Channel.String()).Inc()
	now := time.Now()
	if d.site == nil && now.Sub(s.doubt.logged) > time.Minute { // anyone can name a push service
		s.doubt.logged = now
		s.log.Warn("a server refused a message, and may refuse all of ours", zap.Stringer("channel", d.to.Channel), zap.String("reason", f.Reason))
	}
	if s.doubt.refused == nil || len(s.doubt.refused) >= maxPassed {
		s.doubt.refused = map[string]refusals{}
	}
	taken := s.doubt.taken[d.receives()]
	if d.site != nil {
		taken = d.site.taken
	}
	id := d.subscription()
	r := s.doubt.refused[id]
	if now.Sub(r.last) >= doubtLasts {
		r = refusals{}
	}
	r.last = now
	if r.n == 0 || taken.After(r.at) && now.Sub(r.at) >= doubtEvery {
		r.n, r.at = r.n+1, now
	}
	s.doubt.refused[id] = r
	if r.n < maxDoubts {
		return false
	}
	delete(s.doubt.refused, id) // if the wallet names the address again, counting starts anew
	return true
}
