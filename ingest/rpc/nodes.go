package rpc

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Endpoint is a node, whichever ways lead to it: a node that is asked by HTTP what it answered by WebSocket only
// confirms itself. Endpoints makes them from URLs.
type Endpoint struct {
	URL  string  // http, https, ws or wss; may contain a key, so it is never logged
	WS   string  // its WebSocket, if URL is not one itself; empty: none, heads are polled
	Name string  // for logs and metrics; default: the host
	Rate float64 // maximum calls per second, counting every call of a batch; 0: no limit
}

// Endpoints returns the nodes with the given URLs, in the order in which each is first named. HTTP and WebSocket of one
// URL are one node, and so is a WebSocket at a port of a host where no HTTP is named, with an HTTP of that host and path.
// Providers put "/ws" into the path of a WebSocket.
func Endpoints(urls []string) (all []Endpoint) {
	sites, other := make([]site, len(urls)), make([]int, len(urls))
	for i, raw := range urls {
		sites[i], other[i] = siteOf(raw), -1
	}
	for _, anyPort := range []bool{false, true} {
		for i, ws := range sites {
			if !ws.socket || other[i] >= 0 || anyPort && slices.ContainsFunc(sites, ws.beside) {
				continue
			}
			for k, http := range sites {
				if other[k] < 0 && (ws.beside(http) || anyPort && ws.onHostOf(http)) {
					other[i], other[k] = k, i
					break
				}
			}
		}
	}
	for i, raw := range urls {
		switch k := other[i]; {
		case k < 0:
			all = append(all, Endpoint{URL: raw})
		case k < i: // it is there
		case sites[i].socket:
			all = append(all, Endpoint{URL: urls[k], WS: raw})
		default:
			all = append(all, Endpoint{URL: raw, WS: urls[k]})
		}
	}
	return all
}

// site is a URL in parts, equal for all spellings of it.
type site struct {
	host, port, rest string
	socket           bool // WebSocket, else HTTP
	invalid          bool
}

func siteOf(raw string) site {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return site{rest: raw, invalid: true}
	}
	s := site{host: strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), port: u.Port(), socket: strings.HasPrefix(u.Scheme, "ws")}
	if s.port == "" {
		s.port = map[string]string{"http": "80", "ws": "80", "https": "443", "wss": "443"}[u.Scheme]
	}
	path := strings.Split(strings.Trim(u.Path, "/"), "/")
	if s.socket {
		path = slices.DeleteFunc(path, func(part string) bool { return part == "ws" })
	}
	s.rest = strings.Join(path, "/") + "?" + u.RawQuery + "@" + u.User.String()
	return s
}

// beside reports whether one is the WebSocket of the other one's HTTP.
func (s site) beside(other site) bool { return s.onHostOf(other) && s.port == other.port }

// onHostOf is beside, at whatever ports.
func (s site) onHostOf(other site) bool {
	return s.socket != other.socket && s.host == other.host && s.rest == other.rest && !s.invalid && !other.invalid
}

// validEndpoints returns all errors of the endpoints.
func validEndpoints(endpoints []Endpoint) (errs []error) {
	for i, e := range endpoints {
		here := siteOf(e.URL)
		for k := range i {
			if there := siteOf(endpoints[k].URL); here == there || here.beside(there) {
				errs = append(errs, fmt.Errorf("rpc: endpoints %d and %d are the same node, which must not count as two", k, i))
				break
			}
		}
		if err := validURL(e.URL, "http", "https", "ws", "wss"); err != nil {
			errs = append(errs, fmt.Errorf("rpc: endpoint %d: %w", i, err))
		}
		if e.WS != "" {
			if err := validURL(e.WS, "ws", "wss"); err != nil {
				errs = append(errs, fmt.Errorf("rpc: endpoint %d: WebSocket: %w", i, err))
			}
			if here.socket {
				errs = append(errs, fmt.Errorf("rpc: endpoint %d has two WebSockets", i))
			}
		}
		if e.Rate < 0 {
			errs = append(errs, fmt.Errorf("rpc-rate: %[2]g of endpoint %[1]d is negative", i, e.Rate))
		}
	}
	return errs
}

// validURL does not include the URL in its error, because it may contain a key.
func validURL(raw string, schemes ...string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return errors.New("not an absolute URL")
	}
	if slices.Contains(schemes, u.Scheme) {
		return nil
	}
	return fmt.Errorf("scheme %q is not one of %s", u.Scheme, strings.Join(schemes, ", "))
}
