package httpapi

import (
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Request is a request with its parameters. The typed getters of parameters do not fail: the first error is
// kept, and Err returns it, so that a handler can read all its parameters in a row.
type Request struct {
	HTTP *http.Request
	ID   string // also in x-request-id

	api   *API
	route *Route
	vars  map[string]string
	query [maxQuery]queryValue // in the order of route.Query
	fault *Error

	// scope is the canonical form of the route and of every filter read so far. A cursor is valid only for the
	// scope that it was made with.
	scope []byte
	sort  byte
}

type queryValue struct {
	text  string
	given bool
}

const maxQuery = 8 // query parameters of a route

func (req *Request) reset(a *API, r *http.Request) {
	*req = Request{HTTP: r, ID: a.requestID(r), api: a, scope: req.scope[:0]}
}

// Client is the client as ClientLimits distinguishes them. It is invalid for one without limits.
func (req *Request) Client() netip.Addr {
	if addr := req.api.clients.addrOf(req.HTTP); !addr.IsLoopback() {
		return addr
	}
	return netip.Addr{}
}

// bind checks the query against the route: no unknown, duplicate or malformed parameters.
func (req *Request) bind(route *Route, vars map[string]string) error {
	req.route, req.vars = route, vars
	req.scope = append(req.scope, route.Path...)
	if route.AnyQuery {
		return nil
	}
	for rest := req.HTTP.URL.RawQuery; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		if pair == "" {
			continue
		}
		rawName, rawText, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil {
			return invalid(req.shownName(rawName), "is not a parameter: its percent-encoding is malformed")
		}
		value := req.queryValue(name)
		if value == nil {
			return invalid(req.shownName(name), "is not a parameter of this path")
		}
		if value.given {
			return invalid(name, "is given more than once")
		}
		text, err := url.QueryUnescape(rawText)
		if err != nil {
			return invalid(name, "is malformed: its percent-encoding is broken")
		}
		*value = queryValue{text: text, given: true}
	}
	return nil
}

// canonicalQuery is the canonical form of the query: in the order of the route, escaped by url.QueryEscape.
func (req *Request) canonicalQuery() string {
	if req.HTTP.URL.RawQuery == "" {
		return ""
	}
	var b strings.Builder
	for i, name := range req.route.Query {
		if v := &req.query[i]; v.given && name != req.api.opt.MinBlock {
			if b.Len() > 0 {
				b.WriteByte('&')
			}
			b.WriteString(name)
			b.WriteByte('=')
			b.WriteString(url.QueryEscape(v.text))
		}
	}
	return b.String()
}

// leastBlock is the least block that the answer may be as of. It is no part of the question: an answer of a later one
// is an answer to it, too.
func (req *Request) leastBlock() (uint64, error) {
	name := req.api.opt.MinBlock
	if name == "" || !req.Declares(name) {
		return 0, nil
	}
	n := req.Query(name).Block()
	return n, req.Err()
}

// shownName is the part of an unknown parameter name that may be sent back: in a private API only if it looks
// like a name, and not like a secret.
func (req *Request) shownName(name string) string {
	if req.api.opt.Private && !PlainName(name) {
		return "query"
	}
	return name
}

// PlainName reports whether a text is a short identifier.
func PlainName(name string) bool {
	for i := range len(name) {
		c := name[i] | 0x20 // lower case, if it is a letter
		if (c < 'a' || c > 'z') && (i == 0 || name[i] != '_' && (name[i] < '0' || name[i] > '9')) {
			return false
		}
	}
	return name != "" && len(name) <= maxPlainName
}

const maxPlainName = 24

// Declares reports whether the route has the query parameter.
func (req *Request) Declares(name string) bool { return req.queryValue(name) != nil }

func (req *Request) queryValue(name string) *queryValue {
	for i, known := range req.route.Query {
		if known == name {
			return &req.query[i]
		}
	}
	return nil
}

// Err is the first error of the parameters read so far.
func (req *Request) Err() error {
	if req.fault == nil {
		return nil
	}
	return req.fault
}

func (req *Request) fail(err *Error) {
	if req.fault == nil {
		req.fault = err
	}
}

const maxRequestID = 63 // bytes: fewer than the 64 digits of a private key, which must not be logged

// requestID is the client's request ID if it is valid, else a new one. A private API takes none that could be a key.
func (a *API) requestID(r *http.Request) string {
	valid := saneRequestID
	if a.opt.Private {
		valid = isTraceID
	}
	if given := r.Header["X-Request-Id"]; len(given) == 1 && valid(given[0]) {
		return given[0]
	}
	var raw [16]byte
	for i, n := 0, rand.Uint64(); i < 8; i, n = i+1, n>>8 {
		raw[i] = byte(n)
	}
	for i, n := 8, rand.Uint64(); i < 16; i, n = i+1, n>>8 {
		raw[i] = byte(n)
	}
	return hex.EncodeToString(raw[:])
}

func saneRequestID(id string) bool {
	for i := range len(id) {
		c := id[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return id != "" && len(id) <= maxRequestID
}

// isTraceID reports whether an ID is a UUID, or as many hex digits without its dashes, as a trace of OpenTelemetry has.
func isTraceID(id string) bool {
	const digits, uuid = 32, 36
	for i := range len(id) {
		dash := len(id) == uuid && (i == 8 || i == 13 || i == 18 || i == 23)
		switch c := id[i]; {
		case dash != (c == '-'):
			return false
		case !dash && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f'):
			return false
		}
	}
	return len(id) == digits || len(id) == uuid
}
