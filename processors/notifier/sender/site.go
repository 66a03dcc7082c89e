package sender

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/lienstream/lienstream/processors/notifier"
)

// services are the hosts of browsers' push services. They begin trusted: which host a stranger names does not make it his. One that is
// silent is on trial as any other. Hosts below them are others: anybody can name one that does not exist.
var services = []string{
	"fcm.googleapis.com",                // Chrome, Edge on Android, Opera, Samsung
	"updates.push.services.mozilla.com", // Firefox
	"web.push.apple.com",                // Safari
}

// regional is the domain of Edge's push service, with a host for each region. It has no trust to begin with, but each host is judged by
// itself.
const regional = ".notify.windows.com"

// newSite is a site that nothing was sent to yet.
func (s *Sender) newSite(name string) *site {
	of := &site{room: s.cfg.PerHost, slots: make(chan struct{}, max(s.cfg.PerHost, s.cfg.Parallel/2)), needs: 1}
	if slices.Contains(services, name) {
		of.trusts = make(chan struct{})
	}
	return of
}

// site is what a push endpoint's host belongs to, and how it answers what it is sent. One that has answered in time lately may have
// more than PerHost attempts: a few push services have most browsers, and what one look starts is all they get until the next.
// All others are on trial: together they share a quarter of the channel, with one attempt each, since who has a name can have
// any number of hosts that never answer. A push service that everybody knows needs no trial to begin with.
type site struct {
	attempts int           // queued or running
	news     int           // of these, what is of no deal
	room     int           // how many there may be; half of them of no deal
	slots    chan struct{} // running

	quick  int           // answers in time, one after the other
	needs  int           // so many end its trial: more each time that it has one again
	taken  time.Time     // when it last took a message
	trusts chan struct{} // closed when its next trial begins; nil: it has one
}

const (
	maxSites = 4096 // that are remembered while nothing is sent to them

	quick = time.Second     // a site that answers so soon gets more room
	slow  = 3 * time.Second // and one that takes so long is on trial again

	mostNeeds = 16
	forgiven  = 256 // answers in time, after which former trials no longer count
)

// trial counts the attempts at all sites that are on trial. They wait for nothing but a slot of the channel, so what is queued is
// no more than what may run.
type trial struct{ attempts, news int }

// maxTrial is how many attempts sites on trial share.
func (s *Sender) maxTrial() int { return max(s.cfg.Parallel/4, 1) }

// trusted reports whether a host's site is not on trial, or is nobody's. The caller holds the lock.
func (s *Sender) trusted(host string) bool {
	of := s.sites[host]
	if of == nil {
		return host == "" || slices.Contains(services, host)
	}
	return of.trusts != nil
}

// hasRoom reports whether one more attempt may be queued. The caller holds the lock.
func (s *Sender) hasRoom(host string, ofDeal bool) bool {
	of := s.sites[host]
	if s.trusted(host) {
		return of == nil || of.attempts < of.room && (ofDeal || of.news < max(of.room/2, 1))
	}
	return (of == nil || of.attempts == 0) && s.trial.attempts < s.maxTrial() && (ofDeal || s.trial.news < max(s.maxTrial()/2, 1))
}

// take counts an attempt. The caller holds the lock.
func (s *Sender) take(d *due) {
	of := s.sites[d.host]
	if of == nil {
		s.forgetSites()
		of = s.newSite(d.host)
		s.sites[d.host] = of
	}
	d.site, d.trusts, d.onTrial = of, of.trusts, of.trusts == nil
	s.count(d, 1)
}

// forgetSites makes room for one more: first of those that are on trial, as is who is not known. The caller holds the lock.
func (s *Sender) forgetSites() {
	for _, trusted := range []bool{false, true} {
		if len(s.sites) < maxSites {
			return
		}
		for name, idle := range s.sites {
			if idle.attempts == 0 && (trusted || idle.trusts == nil) {
				delete(s.sites, name)
			}
		}
	}
}

// count adds attempts to those of a site. The caller holds the lock.
func (s *Sender) count(d *due, n int) {
	d.site.attempts += n
	if d.onTrial {
		s.trial.attempts += n
	}
	if d.to.Stage.OfDeal() {
		return
	}
	d.site.news += n
	if d.onTrial {
		s.trial.news += n
	}
}

// answered judges a site by an attempt. What an answer in time says does not count, unless it asks for less: a stranger's
// subscription may be refused as often as he likes.
func (s *Sender) answered(of *site, f *Failure, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case f != nil && f.Unasked:
	case f != nil && f.NoName && took < slow: // anybody can make up a host below somebody else's domain: it is that host's alone
	case took >= slow || f != nil && f.Silent:
		of.room, of.quick = s.cfg.PerHost, 0
		if of.trusts != nil {
			close(of.trusts)
			of.trusts, of.needs = nil, min(2*of.needs, mostNeeds)
		}
	case took >= quick || f != nil && f.Busy:
		of.room = s.cfg.PerHost
	case of.trusts == nil:
		if of.quick++; of.quick >= of.needs {
			of.trusts = make(chan struct{})
		}
	default:
		of.room = max(of.room, min(2*of.room, s.cfg.Queue/2))
		if of.quick++; of.quick >= forgiven {
			of.needs = 1
		}
	}
}

// siteOf is what a push endpoint's host belongs to, all of whose hosts share the limit of one: who has a domain can make up
// any number of hosts.
func siteOf(host string) string {
	host = notifier.HostName(host)
	if addr, err := netip.ParseAddr(host); err == nil {
		bits := 24
		if addr = addr.Unmap(); addr.Is6() {
			bits = 48
		}
		network, _ := addr.WithZone("").Prefix(bits) // the number of bits is right
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
