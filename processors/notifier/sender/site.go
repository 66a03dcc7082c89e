package sender

import (
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
)

// site is what a push endpoint's host belongs to, and how it takes what it is sent. One that answers may have more than PerHost
// attempts: a few push services have most browsers, and what one look starts is all they get until the next. Who answers slowly
// gets no more, or a few such would have all that there are.
type site struct {
	attempts int           // queued or running
	news     int           // of these, what is of no deal
	room     int           // how many there may be; half of them of no deal
	slots    chan struct{} // running
}

// maxSites bounds how many are remembered while nothing is sent to them.
const maxSites = 4096

// quick is how soon a site answers that gets more room.
const quick = time.Second

// hasRoom reports whether one more attempt may be queued. The caller holds the lock.
func (s *Sender) hasRoom(host string, ofDeal bool) bool {
	of := s.sites[host]
	return of == nil || of.attempts < of.room && (ofDeal || of.news < max(of.room/2, 1))
}

// take counts an attempt. The caller holds the lock.
func (s *Sender) take(host string, ofDeal bool) *site {
	of := s.sites[host]
	if of == nil {
		if len(s.sites) >= maxSites {
			for name, idle := range s.sites {
				if idle.attempts == 0 {
					delete(s.sites, name)
				}
			}
		}
		of = &site{room: s.cfg.PerHost, slots: make(chan struct{}, max(s.cfg.PerHost, s.cfg.Parallel/2))}
		s.sites[host] = of
	}
	of.attempts++
	if !ofDeal {
		of.news++
	}
	return of
}

// answered gives a site more room, or what all begin with.
func (s *Sender) answered(of *site, well bool, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if well && took < quick {
		of.room = max(of.room, min(2*of.room, s.cfg.Queue/2))
	} else {
		of.room = s.cfg.PerHost
	}
}

// siteOf is what a push endpoint's host belongs to, all of whose hosts share the limit of one: who has a domain can make up
// any number of hosts.
func siteOf(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		bits := 24
		if addr = addr.Unmap(); addr.Is6() {
			bits = 48
		}
		network, _ := addr.WithZone("").Prefix(bits) // the number of bits is right
		return network.String()
	}
	if site, err := publicsuffix.EffectiveTLDPlusOne(strings.ToLower(strings.TrimSuffix(host, "."))); err == nil {
		return site
	}
	return host
}
