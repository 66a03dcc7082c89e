package read

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// minTokenBytes is the minimum length of a token.
const minTokenBytes = 16

const (
	authorizationHeader = "Authorization"
	bearer              = "Bearer "
)

// CheckToken returns an error if a node must not serve its read API at an address with a token. Without a token
// only a loopback address is allowed.
func CheckToken(token, listen string) error {
	if token != "" {
		if len(token) < minTokenBytes {
			return fmt.Errorf("query token: shorter than %d bytes", minTokenBytes)
		}
		return nil
	}
	host, _, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return errors.Join(err, fmt.Errorf("no query token, but %s is reachable from other machines", listen))
	}
	return nil
}

// Authorized requires the token of every request; if it is empty, anyone is allowed.
func Authorized(token string, h http.Handler) http.Handler {
	if token == "" {
		return h
	}
	want := sha256.Sum256([]byte(bearer + token)) // hashed, so that the comparison takes the same time for every length
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get(authorizationHeader)))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}
