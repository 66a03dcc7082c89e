package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// cursors encodes and verifies positions in lists. A cursor is, in base64url,
//
//	version (1 byte) ‖ sort (1) ‖ digest of the route and its filters (8) ‖ last key ‖ tag (16)
//
// where the tag is a truncated HMAC-SHA256 of everything before it. A cursor is not secret: the tag ensures
// that it comes from us and is used with the list that it belongs to.
type cursors struct {
	key [sha256.Size]byte
}

const (
	cursorVersion = 1
	digestBytes   = 8
	headBytes     = 2 + digestBytes
	tagBytes      = 16
	maxLastKey    = 256
	maxCursorText = 384 // length of the longest cursor
)

func newCursors(secret, deployment string) *cursors {
	if secret == "" {
		return &cursors{key: sha256.Sum256([]byte("lienstream cursors of " + deployment))}
	}
	return &cursors{key: sha256.Sum256([]byte("lienstream cursor secret " + secret))}
}

// append encodes the position after the item with key last.
func (c *cursors) append(dst []byte, sort byte, scope, last []byte) []byte {
	if len(last) > maxLastKey {
		panic("the list key is too long for a cursor")
	}
	raw := make([]byte, 0, headBytes+maxLastKey+tagBytes)
	raw = append(raw, cursorVersion, sort)
	digest := sha256.Sum256(scope)
	raw = append(raw, digest[:digestBytes]...)
	raw = append(raw, last...)
	raw = c.appendTag(raw)
	return base64.RawURLEncoding.AppendEncode(dst, raw)
}

// open returns the last key in a cursor; false: it is invalid, or of another sort or scope.
// sort and scope.
func (c *cursors) open(text string, sort byte, scope []byte) (last []byte, ok bool) {
	// The decoder ignores line breaks, which would give one cursor many forms.
	if len(text) > maxCursorText || strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < headBytes+tagBytes {
		return nil, false
	}
	sealed := raw[:len(raw)-tagBytes]
	tagged := c.appendTag(append(make([]byte, 0, len(raw)), sealed...))
	if !hmac.Equal(tagged, raw) {
		return nil, false
	}
	digest := sha256.Sum256(scope)
	if raw[0] != cursorVersion || raw[1] != sort || string(raw[2:headBytes]) != string(digest[:digestBytes]) {
		return nil, false
	}
	return sealed[headBytes:], true
}

func (c *cursors) appendTag(raw []byte) []byte {
	mac := hmac.New(sha256.New, c.key[:])
	mac.Write(raw)
	var sum [sha256.Size]byte
	return append(raw, mac.Sum(sum[:0])[:tagBytes]...)
}

// After is the position in the query parameter cursor, or nil. Call it last: the cursor must match the sort and
// filters that were read before.
func (req *Request) After() []byte {
	p := req.Query("cursor")
	if !p.given || req.fault != nil { // report an invalid filter, not its cursor
		return nil
	}
	last, ok := req.api.cursors.open(p.text, req.sort, req.scope)
	if !ok {
		req.fail(&Error{Code: InvalidCursor, Message: `"cursor" must be the nextCursor of a page with the same filters and sort`})
		return nil
	}
	return last
}

// AppendNextCursor appends the JSON value of nextCursor: the position after the item with key last, or null if
// last is nil. After must have been called before.
func (req *Request) AppendNextCursor(dst, last []byte) []byte {
	if last == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = req.api.cursors.append(dst, req.sort, req.scope, last)
	return append(dst, '"')
}
