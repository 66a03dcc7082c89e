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
)

// Keys are the service's secrets, the current one first. Older ones still open what was made with them: that is how
// a key is changed. All nodes must have the same.
type Keys struct {
	Token []string // of tickets' tokens
	Text  []string // of what people wrote
}

const minKeyBytes = 32

// Validate never shows a key.
func (k Keys) Validate() error {
	var faults []error
	for _, set := range []struct {
		name string
		keys []string
	}{{"token keys", k.Token}, {"text keys", k.Text}} {
		if len(set.keys) == 0 {
			faults = append(faults, fmt.Errorf("support: %s: none", set.name))
		}
		for i, key := range set.keys {
			if len(key) < minKeyBytes {
				faults = append(faults, fmt.Errorf("support: %s: number %d is shorter than %d bytes", set.name, i+1, minKeyBytes))
			}
		}
	}
	return errors.Join(faults...)
}

// ParseKeys reads a file of keys: one a line, the current one first.
func ParseKeys(text string) []string { return strings.Fields(text) }

// Ticket is the token that opens a ticket. It is kept nowhere: who knows the key can make it again.
func (k Keys) Ticket(id string) string { return ticketToken(k.Token[0], id) }

func ticketToken(key, id string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("ticket:" + id))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Opens compares a token with every key's, each in constant time and none spared.
func (k Keys) Opens(id, token string) bool {
	given := sha256.Sum256([]byte(token)) // of one length, whatever was given
	ok := false
	for _, key := range k.Token {
		want := sha256.Sum256([]byte(ticketToken(key, id)))
		ok = hmac.Equal(given[:], want[:]) || ok
	}
	return ok
}

var errSealed = errors.New("sealed text: no key opens it")

// Seal encrypts what was written about a ticket, so that it opens for that ticket and purpose only.
func (k Keys) Seal(purpose, id string, text []byte) ([]byte, error) {
	box, err := sealer(k.Text[0])
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // it never fails
	return box.Seal(nonce, nonce, text, []byte(purpose+":"+id)), nil
}

// Open decrypts what Seal made, with whichever key it was.
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
