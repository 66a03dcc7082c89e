package sender

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// doubts are refusals that may be of us or of one address: 5xx by a mail server's policy, 403 of a push service. If others get
// what we send between one and the next, again and again, they are of the address. Otherwise they would end everybody's
// subscription when a relay or a provider refuses us.
type doubts struct {
	refused map[string]refusals  // by subscription
	taken   map[string]time.Time // when a server last took an alert, by receives; of push services see site
	logged  time.Time
}

type refusals struct {
	n    int // between which others got messages
	at   time.Time
	last time.Time // of those that do not count, too
}

// What ends a subscription takes 21 minutes at least. A server that is wrong about us for a moment may refuse any number of
// alerts in it: they count as one.
const (
	maxDoubts  = 8               // such refusals
	doubtEvery = 3 * time.Minute // between two that count
	doubtLasts = 24 * time.Hour  // without one, after which those before do not count any more
)

// subscription identifies what is refused: another address of the wallet has another time.
func (d *due) subscription() string {
	return string(binary.BigEndian.AppendUint64(d.row[:common.AddressLength+1:common.AddressLength+1], uint64(d.sub.Of())))
}

// receives is who decides what is taken: a domain of mail may refuse us, while others do not.
func (d *due) receives() string {
	_, domain, _ := strings.Cut(d.sub.Mask, "@") // of a mail its mask has it
	return d.to.Channel.String() + " " + notifier.HostName(domain)
}

// taken notes that a server took a message.
func (s *Sender) taken(d *due) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.doubt.refused, d.subscription())
	if d.to.Stage == notifier.ToConfirm {
		return // it is no alert: who takes the one may refuse the other, and strangers have them sent
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

// doubted counts a doubtful refusal, and reports whether it is of the address.
func (s *Sender) doubted(d *due, f *Failure) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.doubtful.WithLabelValues(d.to.Channel.String()).Inc()
	now := time.Now()
	if d.site == nil && now.Sub(s.doubt.logged) > time.Minute { // a push service is whoever says so
		s.doubt.logged = now
		s.log.Warn("a server refuses a message, and perhaps all of ours", zap.Stringer("channel", d.to.Channel), zap.String("reason", f.Reason))
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
	delete(s.doubt.refused, id) // a wallet that names the address again begins anew
	return true
}
