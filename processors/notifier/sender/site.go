package sender

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/lienstream/lienstream/processors/notifier"
)

// services are the hosts of browsers' push services. They begin trusted, because no subscriber controls them. One that
// does not answer is put on probation as any other. Hosts below them do not count as theirs: anyone can name one that
// does not exist.
var services = []string{
	"fcm.googleapis.com",                // Chrome, Edge on Android, Opera, Samsung
	"updates.push.services.mozilla.com", // Firefox
	"web.push.apple.com",                // Safari
}

// regional is the domain of Edge's push service, which has a host for each region. Each of these is a site of its own,
// and begins on probation.
const regional = ".notify.windows.com"

// newSite is a site to which no message was sent yet.
func (s *Sender) newSite(name string) *site {
	of := &site{room: s.cfg.PerHost, slots: make(chan struct{}, max(s.cfg.PerHost, s.cfg.Parallel/2)), needs: 1}
	if slices.Contains(services, name) {
		of.trustEnds = make(chan struct{})
	}
	return of
}

// site is the hosts of one owner (siteOf), and how fast they answer. A site that has answered in time lately is trusted
// and may have more than PerHost attempts: a few push services serve most browsers, and get only what one scan starts
// until the next. All other sites are on probation: together they share a quarter of the channel, with one attempt
// each, because the owner of a domain can have any number of hosts that never answer. Well-known push services begin
// trusted.
type site struct {
	attempts int           // queued or running
	news     int           // of these, those of no deal
	room     int           // maximum attempts; half of them of no deal
	slots    chan struct{} // running

	quick     int           // consecutive answers in time
	needs     int           // consecutive answers in time that end its probation: more for each further probation
	taken     time.Time     // when it last took a message
	trustEnds chan struct{} // closed when its next probation begins; nil: it is on probation
}

const (
	maxSites = 4096 // sites that are remembered without a running attempt

	quick = time.Second     // a site that answers faster gets more room
	slow  = 3 * time.Second // a site that takes longer is put on probation

	mostNeeds = 16
	forgiven  = 256 // consecutive answers in time after which earlier probations no longer count
)

// probation counts the attempts at all sites on probation. They wait only for a slot of the channel, so no more are
// queued than may run.
type probation struct{ attempts, news int }

// maxProbation is the number of attempts that sites on probation share.
func (s *Sender) maxProbation() int { return max(s.cfg.Parallel/4, 1) }

// trusted reports whether a host's site is not on probation, or the channel has no hosts. The caller holds the lock.
func (s *Sender) trusted(host string) bool {
	of := s.sites[host]
	if of == nil {
		return host == "" || slices.Contains(services, host)
	}
	return of.trustEnds != nil
}

// hasRoom reports whether one more attempt may be queued. The caller holds the lock.
func (s *Sender) hasRoom(host string, ofDeal bool) bool {
	of := s.sites[host]
	if s.trusted(host) {
		return of == nil || of.attempts < of.room && (ofDeal || of.news < max(of.room/2, 1))
	}
	return (of == nil || of.attempts == 0) && s.probation.attempts < s.maxProbation() && (ofDeal || s.probation.news < max(s.maxProbation()/2, 1))
}

// take counts an attempt. The caller holds the lock.
func (s *Sender) take(d *due) {
	of := s.sites[d.host]
	if of == nil {
		s.forgetSites()
		of = s.newSite(d.host)
		s.sites[d.host] = of
	}
	d.site, d.trustEnds, d.onProbation = of, of.trustEnds, of.trustEnds == nil
	s.count(d, 1)
}

// forgetSites makes room for one more site. It drops those on probation first: so a dropped site is again. The caller
// holds the lock.
func (s *Sender) forgetSites() {
	for _, trusted := range []bool{false, true} {
		if len(s.sites) < maxSites {
			return
		}
		for name, idle := range s.sites {
			if idle.attempts == 0 && (trusted || idle.trustEnds == nil) {
				delete(s.sites, name)
			}
		}
	}
}

// count adds attempts to those of a site. The caller holds the lock.
func (s *Sender) count(d *due, n int) {
	d.site.attempts += n
	if d.onProbation {
		s.probation.attempts += n
	}
	if d.to.Stage.OfDeal() {
		return
	}
	d.site.news += n
	if d.onProbation {
		s.probation.news += n
	}
}

// answered judges a site by an attempt. Only the time of an answer counts, and whether the site asks for fewer
// messages: any subscriber can have messages refused.
func (s *Sender) answered(of *site, f *Failure, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case f != nil && f.Unasked:
	case f != nil && f.NoName && took < slow: // anyone can make up a host below another owner's domain: it must not count against the site
	case took >= slow || f != nil && f.Silent:
		of.room, of.quick = s.cfg.PerHost, 0
		if of.trustEnds != nil {
			close(of.trustEnds)
			of.trustEnds, of.needs = nil, min(2*of.needs, mostNeeds)
		}
	case took >= quick || f != nil && f.Busy:
		of.room = s.cfg.PerHost
	case of.trustEnds == nil:
		if of.quick++; of.quick >= of.needs {
			of.trustEnds = make(chan struct{})
		}
	default:
		of.room = max(of.room, min(2*of.room, s.cfg.Queue/2))
		if of.quick++; of.quick >= forgiven {
			of.needs = 1
		}
	}
}

// siteOf is the site of a push endpoint's host: its registered domain, or its network. All hosts of a site share one
// limit, because the owner of a domain can have any number of hosts.
func siteOf(host string) string {
	host = notifier.HostName(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		bits := 24
		if addr = addr.Unmap(); addr.Is6() {
			bits = 48
		}
		network, _ := addr.WithZone("").Prefix(bits) // cannot fail: the number of bits is valid
		return network.String()
	}
	if slices.Contains(services, host) || strings.HasSuffix(host, regional) {
		return host
	}
	if site, err := publicsuffix.EffectiveTLDPlusOne(host); err == nil && !slices.Contains(services, site) {
		return site
	}
	return host
}
