package httpapi

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// Signer makes tags of texts that callers are to bring back unchanged. Its key is that of cursors, for
// another purpose: alike on all nodes where the secret is.
type Signer struct{ key [sha256.Size]byte }

// NewSigner returns the signer for a purpose, such as "service/operation".
func NewSigner(secret, purpose string) *Signer {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("lienstream " + purpose))
	s := new(Signer)
	mac.Sum(s.key[:0])
	return s
}

// AppendTag appends the tag of a text, in base64url.
func (s *Signer) AppendTag(dst, text []byte) []byte {
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write(text)
	var sum [sha256.Size]byte
	return base64.RawURLEncoding.AppendEncode(dst, mac.Sum(sum[:0])[:tagBytes])
}
