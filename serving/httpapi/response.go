package httpapi

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
)

// Response is filled in by a handler, which appends to Body. It is written after the handler returned.
type Response struct {
	Status int         // 200 unless set
	Header http.Header // keys in canonical form
	Body   []byte

	// Stream, if set, sends the body after the headers; Body is not sent, and there is no ETag and no length.
	Stream func(*Stream)

	// FreshWhile, if set, allows caching: the response may answer other requests for the same path and
	// parameters while it returns true. It is called for each of them, concurrently. The response must not
	// depend on anything else, such as headers or the client.
	FreshWhile func() bool

	Block uint64 // that the response is as of, for Options.MinBlock

	written int
}

const (
	maxPooledBody = 1 << 20
	minGzipBytes  = 1400 // compressing what fits into one packet saves no time
)

var (
	typeJSON      = []string{"application/json"}
	noStore       = []string{"no-store"}
	noCache       = []string{"no-cache"} // keep it, but ask each time: the ETag makes that cheap
	encodingGzip  = []string{"gzip"}
	varyEncoding  = []string{"Accept-Encoding"}
	allowHeaders  = []string{"Content-Type", "If-None-Match", "X-Request-Id"}
	preflightAge  = []string{"86400"}
	defaultRetry  = time.Second
	standardShown = []string{"Allow", "ETag", "Retry-After", "X-Request-Id"}
)

func fixedHeaders(expose []string) []header {
	return []header{
		{"Access-Control-Allow-Origin", []string{"*"}}, // without credentials
		{"Access-Control-Expose-Headers", []string{strings.Join(slices.Concat(standardShown, expose), ", ")}},
		{"Content-Security-Policy", []string{"default-src 'none'; frame-ancestors 'none'"}},
		{"X-Content-Type-Options", []string{"nosniff"}},
	}
}

func (res *Response) reset(h http.Header) {
	*res = Response{Status: http.StatusOK, Header: h, Body: res.Body[:0]}
}

// SetHeader sets a header; the name must be in canonical form.
func (res *Response) SetHeader(name, value string) { res.Header[name] = []string{value} }

// fail turns the response into an error.
func (res *Response) fail(e *Error, retryable func(Code) bool) {
	message := e.Message
	if e.Code == Internal {
		message = "internal error; the x-request-id identifies this request in our logs"
	}
	res.Status, res.Stream = e.Code.Status, nil
	res.Body = append(res.Body[:0], `{"error":{"code":`...)
	res.Body = AppendString(res.Body, e.Code.Name)
	res.Body = append(res.Body, `,"message":`...)
	res.Body = AppendString(res.Body, message)
	if retryable != nil {
		res.Body = strconv.AppendBool(append(res.Body, `,"retryable":`...), retryable(e.Code))
	}
	res.Body = append(res.Body, "}}"...)
	res.Header["Content-Type"] = typeJSON
	res.Header["Cache-Control"] = noStore
	if res.Status == http.StatusServiceUnavailable || res.Status == http.StatusTooManyRequests {
		res.RetryAfter(e.RetryAfter)
	}
}

// RetryAfter sets that header in whole seconds, at least one.
func (res *Response) RetryAfter(d time.Duration) {
	seconds := (max(d, defaultRetry) + time.Second - 1) / time.Second
	res.SetHeader("Retry-After", strconv.FormatInt(int64(seconds), 10))
}

// preflight answers OPTIONS, including CORS preflight requests.
func (res *Response) preflight(e *endpoint, r *http.Request, allow []string) {
	res.Status = http.StatusNoContent
	res.Header["Allow"] = e.allow
	if r.Header.Get("Access-Control-Request-Method") != "" {
		res.Header["Access-Control-Allow-Methods"] = e.allow
		res.Header["Access-Control-Allow-Headers"] = []string{strings.Join(slices.Concat(allowHeaders, allow), ", ")}
		res.Header["Access-Control-Max-Age"] = preflightAge
	}
}

// complete adds the headers that do not depend on the encoding.
func (res *Response) complete() {
	if res.Status == http.StatusNoContent || res.Stream != nil {
		return
	}
	h := res.Header
	if h["Content-Type"] == nil {
		h["Content-Type"] = typeJSON
	}
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = noCache
	}
	if h["Vary"] == nil {
		h["Vary"] = varyEncoding
	}
}

// payload is a body in its encodings.
//
// The ETag is computed from the uncompressed body, and the compressed form has its own, with a suffix: a strong
// ETag identifies bytes. That is why compression is done here, on the whole body, and not in a wrapping handler
// (handlers.CompressHandler keeps the ETag of other bytes; gzhttp buffers again to learn the size). The hash
// need not be cryptographic: a collision only affects the client's own cache. SHA-256 took more time than
// everything else.
type payload struct {
	plain       []byte
	tag, length []string // header values

	gzipTag    []string // nil: too short to compress
	packing    sync.Once
	packed     []byte
	gzipLength []string
}

func newPayload(plain []byte) *payload {
	p := &payload{plain: plain, length: []string{strconv.Itoa(len(plain))}}
	tag := make([]byte, 0, 2+tagDigits+len(gzipSuffix))
	tag = strconv.AppendUint(append(tag, '"'), xxhash.Sum64(plain), 16)
	p.tag = []string{string(tag) + `"`}
	if len(plain) >= minGzipBytes {
		p.gzipTag = []string{string(tag) + gzipSuffix + `"`}
	}
	return p
}

// form chooses the encoding that the request accepts. It returns the bytes to send, and sets the status and
// headers.
func (p *payload) form(status int, r *http.Request, h http.Header) (int, []byte) {
	body, tag, length := p.plain, p.tag, p.length
	packed := p.gzipTag != nil && acceptsGzip(r.Header["Accept-Encoding"])
	if packed {
		tag = p.gzipTag
	}
	h["Etag"] = tag
	if status == http.StatusOK && matches(r.Header["If-None-Match"], tag[0]) {
		delete(h, "Content-Type")
		return http.StatusNotModified, nil
	}
	if packed {
		p.packing.Do(p.pack)
		body, length = p.packed, p.gzipLength
		h["Content-Encoding"] = encodingGzip
	}
	h["Content-Length"] = length
	return status, body
}

func (p *payload) pack() {
	z := packers.Get().(*packer)
	p.packed = bytes.Clone(z.pack(p.plain))
	p.gzipLength = []string{strconv.Itoa(len(p.packed))}
	packers.Put(z)
}

const (
	gzipSuffix = "-gzip"
	tagDigits  = 16 // 64 bits in hex
)

// matches compares weakly, as If-None-Match requires, and treats both encodings as the same response.
func matches(headers []string, tag string) bool {
	plain := plainTag(tag)
	for _, line := range headers {
		for candidate := range strings.SplitSeq(line, ",") {
			candidate = strings.TrimSpace(candidate)
			if candidate == "*" || plainTag(strings.TrimPrefix(candidate, "W/")) == plain {
				return true
			}
		}
	}
	return false
}

func plainTag(tag string) string {
	if cut, ok := strings.CutSuffix(tag, gzipSuffix+`"`); ok {
		return cut + `"`
	}
	return tag
}

// acceptsGzip parses Accept-Encoding: gzip, or *, with a weight above 0.
func acceptsGzip(headers []string) bool {
	star := false
	for _, line := range headers {
		for item := range strings.SplitSeq(line, ",") {
			coding, params, _ := strings.Cut(item, ";")
			weight, weighted := strings.CutPrefix(strings.ReplaceAll(strings.ToLower(params), " ", ""), "q=")
			wanted := true
			if weighted {
				q, err := strconv.ParseFloat(weight, 64)
				wanted = err == nil && q > 0
			}
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip":
				return wanted
			case "*":
				star = wanted
			}
		}
	}
	return star
}

// packer is a gzip writer with its buffer.
type packer struct {
	buf bytes.Buffer
	zip *gzip.Writer
}

var packers = sync.Pool{New: func() any {
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	return &packer{zip: zip}
}}

func (p *packer) pack(body []byte) []byte {
	p.buf.Reset()
	p.zip.Reset(&p.buf)
	_, _ = p.zip.Write(body) // bytes.Buffer does not fail
	_ = p.zip.Close()
	return p.buf.Bytes()
}
