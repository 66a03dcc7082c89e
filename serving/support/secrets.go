package support

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Keys are the service's secrets, the current one first. Older ones still decrypt, so that keys can be rotated.
// All nodes must have the same.
type Keys struct {
	Token []TokenKey // of tickets' tokens
	Text  []string   // for user texts
}

// TokenKey is a secret of tickets' tokens.
type TokenKey struct {
	Secret string
	Until  time.Time // when its tokens become invalid; zero: never
}

const minKeyBytes = 32

// Validate returns all errors, without the keys.
func (k Keys) Validate() error {
	secrets := make([]string, len(k.Token))
	for i, key := range k.Token {
		secrets[i] = key.Secret
	}
	faults := []error{checkKeys("support-token-keys-file", secrets), k.ValidateText()}
	if len(k.Token) > 0 && !k.Token[0].Until.IsZero() {
		faults = append(faults, errors.New("support-token-keys-file: the first key is the one in use, and must not have an expiry time"))
	}
	return errors.Join(faults...)
}

// ValidateText is Validate without the token keys, which staff do not need.
func (k Keys) ValidateText() error { return checkKeys("support-text-keys-file", k.Text) }

func checkKeys(name string, keys []string) error {
	if len(keys) == 0 {
		return fmt.Errorf("%s: required", name)
	}
	var faults []error
	for i, key := range keys {
		if len(key) < minKeyBytes {
			faults = append(faults, fmt.Errorf("%s: key %d is shorter than %d bytes", name, i+1, minKeyBytes))
		}
	}
	return errors.Join(faults...)
}

// ParseTextKeys reads a file of keys: one a line, the current one first.
func ParseTextKeys(text string) []string { return strings.Fields(text) }

// ParseTokenKeys reads a file of keys: one a line, the current one first. An older one may be followed by the time
// until which its tokens are valid, in RFC 3339 format. The error shows no key.
func ParseTokenKeys(text string) ([]TokenKey, error) {
	var keys []TokenKey
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		key := TokenKey{Secret: fields[0]}
		if len(fields) > 1 {
			until, err := time.Parse(time.RFC3339, fields[1])
			if err != nil || len(fields) > 2 {
				return nil, fmt.Errorf("key %d: what follows it is not a time such as 2027-01-31T00:00:00Z", len(keys)+1)
			}
			key.Until = until
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Ticket is a ticket's token. It is not stored, but derived from the key.
func (k Keys) Ticket(id string) string { return ticketToken(k.Token[0].Secret, id) }

func ticketToken(key, id string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("ticket:" + id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Opens compares a token with that of every key, valid or not, each in constant time.
func (k Keys) Opens(id, token string, now time.Time) bool {
	given := sha256.Sum256([]byte(token)) // hashed to a fixed length
	ok := false
	for _, key := range k.Token {
		want := sha256.Sum256([]byte(ticketToken(key.Secret, id)))
		same := hmac.Equal(given[:], want[:])
		ok = same && (key.Until.IsZero() || now.Before(key.Until)) || ok
	}
	return ok
}

var errSealed = errors.New("sealed text: no key decrypts it")

// Seal encrypts a text for a ticket and purpose.
func (k Keys) Seal(purpose, id string, text []byte) ([]byte, error) {
	box, err := sealer(k.Text[0])
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return box.Seal(nonce, nonce, text, []byte(purpose+":"+id)), nil
}

// Open decrypts a text, with any of the keys.
func (k Keys) Open(purpose, id string, sealed []byte) ([]byte, error) {
	for _, key := range k.Text {
		box, err := sealer(key)
		if err != nil {
			return nil, err
		}
		if len(sealed) < box.NonceSize() {
			break
		}
		text, err := box.Open(nil, sealed[:box.NonceSize()], sealed[box.NonceSize():], []byte(purpose+":"+id))
		if err == nil {
			return text, nil
		}
	}
	return nil, errSealed
}

func sealer(key string) (cipher.AEAD, error) {
	sum := sha256.Sum256([]byte("seal:" + key))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return cipher.NewGCM(block)
}
