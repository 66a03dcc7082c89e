package notifier

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// Keys encrypt addresses at rest, in the command topic and in the state, and sign the links that end a
// subscription. The first is used for what is new; what any of them sealed can be opened. To rotate, put a new
// key in front, and take the old one away once nobody's address is sealed with it any more.
type Keys struct{ all []key }

type key struct {
	id   byte
	aead cipher.AEAD
	mac  []byte
}

const keyBytes = 32

// ErrSealed means that no key opens what is sealed.
var ErrSealed = errors.New("no key decrypts the address")

// ParseKeys reads "<id>:<64 hex digits>", several of them apart by commas; an id is 1 to 255.
func ParseKeys(text string) (*Keys, error) {
	k := &Keys{}
	seen := map[byte]bool{}
	for i, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		var id uint8
		name, secret, ok := strings.Cut(one, ":")
		if _, err := fmt.Sscanf(name, "%d", &id); err != nil || !ok || id == 0 || seen[id] {
			return nil, fmt.Errorf("key %d: its ID is not a unique number from 1 to 255", i+1) // and not repeated: it is a secret
		}
		raw, err := hex.DecodeString(secret)
		if err != nil || len(raw) != keyBytes {
			return nil, fmt.Errorf("key %d: not %d bytes in hex", i+1, keyBytes)
		}
		seen[id] = true
		block, err := aes.NewCipher(derive(raw, "seal"))
		if err != nil {
			return nil, err
		}
		aead, err := cipher.NewGCM(block)
		if err != nil {
			return nil, err
		}
		k.all = append(k.all, key{id, aead, derive(raw, "link")})
	}
	if len(k.all) == 0 {
		return nil, errors.New("no key")
	}
	return k, nil
}

// derive makes a key of its own for each use.
func derive(secret []byte, use string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("lienstream notifier " + use))
	return h.Sum(nil)
}

// String hides the keys.
func (k *Keys) String() string { return fmt.Sprintf("%d keys", len(k.all)) }

// GoString hides them from %#v.
func (k *Keys) GoString() string { return k.String() }

// Seal encrypts the address of a wallet's channel: for no other can it be opened.
//
//	key ID (1) ‖ nonce (12) ‖ ciphertext and tag
func (k *Keys) Seal(wallet common.Address, channel Channel, address string) ([]byte, error) {
	now := k.all[0]
	out := make([]byte, 1+now.aead.NonceSize(), 1+now.aead.NonceSize()+len(address)+now.aead.Overhead())
	out[0] = now.id
	if _, err := rand.Read(out[1:]); err != nil {
		return nil, err
	}
	return now.aead.Seal(out, out[1:], []byte(address), subscriptionKey(wallet, channel)), nil
}

// Open decrypts what Seal made.
func (k *Keys) Open(wallet common.Address, channel Channel, sealed []byte) (string, error) {
	for _, key := range k.all {
		if n := 1 + key.aead.NonceSize(); len(sealed) > n && sealed[0] == key.id {
			plain, err := key.aead.Open(nil, sealed[1:n], sealed[n:], subscriptionKey(wallet, channel))
			if err != nil {
				return "", ErrSealed
			}
			return string(plain), nil
		}
	}
	return "", ErrSealed
}

// linkBytes of a MAC are enough for a link that ends one subscription.
const linkBytes = 16

// Link authenticates a link that ends a subscription, as long as it is the one that began at a time.
func (k *Keys) Link(wallet common.Address, channel Channel, createdAt int64) string {
	return k.all[0].link(wallet, channel, createdAt)
}

// GoodLink says whether any of the keys made it.
func (k *Keys) GoodLink(token string, wallet common.Address, channel Channel, createdAt int64) bool {
	good := false
	for _, key := range k.all {
		good = hmac.Equal([]byte(token), []byte(key.link(wallet, channel, createdAt))) || good
	}
	return good
}

func (k key) link(wallet common.Address, channel Channel, createdAt int64) string {
	h := hmac.New(sha256.New, k.mac)
	fmt.Fprintf(h, "%s %s %d", wallet.Hex(), channel, createdAt)
	return hex.EncodeToString(h.Sum(nil)[:linkBytes])
}
