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
	"slices"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// Keys encrypt addresses at rest, in the command topic and in the state, and sign unsubscribe links. The first
// key encrypts; any of them decrypts. To rotate, put a new key first, and remove the old one once no address is
// encrypted with it any more, which processors/notifier/resealer sees to.
type Keys struct{ all []key }

type key struct {
	id   byte
	aead cipher.AEAD
	mac  []byte
}

const keyBytes = 32

// ErrSealed: no key decrypts the address.
var ErrSealed = errors.New("no key decrypts the address")

// ParseKeys parses "<id>:<64 hex digits>", comma-separated; an id is 1 to 255.
func ParseKeys(text string) (*Keys, error) {
	k := &Keys{}
	seen := map[byte]bool{}
	for i, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		var id uint8
		name, secret, ok := strings.Cut(one, ":")
		if _, err := fmt.Sscanf(name, "%d", &id); err != nil || !ok || id == 0 || seen[id] {
			return nil, fmt.Errorf("key %d: its ID is not a unique number from 1 to 255", i+1) // without the text, which is secret
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

// derive derives a separate key for each use.
func derive(secret []byte, use string) []byte {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("lienstream notifier " + use))
	return h.Sum(nil)
}

// String hides the keys.
func (k *Keys) String() string { return fmt.Sprintf("%d keys", len(k.all)) }

// GoString hides them from %#v.
func (k *Keys) GoString() string { return k.String() }

// Seal encrypts an address for a wallet and channel. It cannot be decrypted for others.
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

// Current is the ID of the key that encrypts.
func (k *Keys) Current() byte { return k.all[0].id }

// KeyOf is the ID of the key that encrypted an address; 0: Seal did not make it. has reports whether the key is one of
// these.
func (k *Keys) KeyOf(sealed []byte) (id byte, has bool) {
	if len(sealed) == 0 {
		return 0, false
	}
	return sealed[0], slices.ContainsFunc(k.all, func(one key) bool { return one.id == sealed[0] })
}

// linkBytes is the length of an unsubscribe link's MAC.
const linkBytes = 16

// Link returns the token of an unsubscribe link. It is valid for the subscription created at that time while its
// address is this one: a mail to a wrong address must not end alerts to another.
func (k *Keys) Link(wallet common.Address, channel Channel, createdAt int64, address string) string {
	return k.all[0].sum(linkText(wallet, channel, createdAt, address))
}

// GoodLink reports whether one of the keys made the token.
func (k *Keys) GoodLink(token string, wallet common.Address, channel Channel, createdAt int64, address string) bool {
	return k.good(token, linkText(wallet, channel, createdAt, address))
}

func linkText(wallet common.Address, channel Channel, createdAt int64, address string) string {
	return fmt.Sprintf("%s %s %d %s", wallet.Hex(), channel, createdAt, address)
}

// sum is a MAC of a text. The text has a different prefix for each use.
func (k key) sum(text string) string {
	h := hmac.New(sha256.New, k.mac)
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)[:linkBytes])
}

// good reports whether one of the keys made the token of a text.
func (k *Keys) good(token, text string) bool {
	good := false
	for _, key := range k.all {
		good = hmac.Equal([]byte(token), []byte(key.sum(text))) || good
	}
	return good
}

func codeText(wallet common.Address, channel Channel, unix int64) string {
	return fmt.Sprintf("confirm %s %s %d", wallet.Hex(), channel, unix)
}

// Code returns the code that confirms the address which a wallet named in the message of that time.
func (k *Keys) Code(wallet common.Address, channel Channel, unix int64) string {
	return k.all[0].sum(codeText(wallet, channel, unix))
}

// GoodCode reports whether one of the keys made the code.
func (k *Keys) GoodCode(code string, wallet common.Address, channel Channel, unix int64) bool {
	return k.good(code, codeText(wallet, channel, unix))
}

func refusalText(wallet common.Address, at int64, email string) string {
	return fmt.Sprintf("refuse %s %d %s", wallet.Hex(), at, email)
}

// Refusal returns the token in a mail of that time that ends what it asks for.
func (k *Keys) Refusal(wallet common.Address, at int64, email string) string {
	return k.all[0].sum(refusalText(wallet, at, email))
}

// GoodRefusal reports whether one of the keys made the token.
func (k *Keys) GoodRefusal(token string, wallet common.Address, at int64, email string) bool {
	return k.good(token, refusalText(wallet, at, email))
}

const hookText = "telegram hook"

// Hook is the secret with which Telegram authenticates its messages.
func (k *Keys) Hook() string { return k.all[0].sum(hookText) }

// GoodHook reports whether a secret is Hook of one of the keys.
func (k *Keys) GoodHook(secret string) bool { return k.good(secret, hookText) }

func takerText(wallet common.Address, channel Channel, address string) string {
	if channel == Email {
		bare, tagged := mailbox(address)
		if tagged { // the plus sign may be part of a mailbox's own name
			name, _, _ := strings.Cut(address, "@")
			_, tag, _ := strings.Cut(lower(name), "+")
			bare += " " + tag
		}
		address = placeOf(bare, tagged)
	}
	return fmt.Sprintf("taker %s %s %s", wallet.Hex(), channel, address)
}

// Taker identifies an address of a wallet, whatever its spelling.
func (k *Keys) Taker(wallet common.Address, channel Channel, address string) string {
	return k.all[0].sum(takerText(wallet, channel, address))
}

// GoodTaker reports whether it is Taker of that address, by one of the keys.
func (k *Keys) GoodTaker(taker string, wallet common.Address, channel Channel, address string) bool {
	return k.good(taker, takerText(wallet, channel, address))
}

// Place is where the mails that ask for an email address to be confirmed are counted: the keyed hash of its mailbox, in
// the form of a wallet's address.
func (k *Keys) Place(email string) (at common.Address) {
	h := hmac.New(sha256.New, k.all[0].mac)
	fmt.Fprintf(h, "place %s", placeOf(mailbox(email)))
	copy(at[:], h.Sum(nil))
	return at
}

// mailbox is the mailbox of an address for the purpose of limits, and whether the address has a tag after a plus sign.
// The case of ASCII letters, the spelling of the domain, and dots in a name at Gmail do not make another mailbox. Other
// letters of the name stay, or a similar-looking address that does not exist would use up the mails of the real one.
func mailbox(email string) (bare string, tagged bool) {
	name, domain, _ := strings.Cut(email, "@")
	name, _, tagged = strings.Cut(lower(name), "+")
	domain = HostName(domain)
	if domain == "gmail.com" || domain == "googlemail.com" {
		name, domain = strings.ReplaceAll(name, ".", ""), "gmail.com"
	}
	return name + "@" + domain, tagged
}

// placeOf names a mailbox, or all of its tags together: mails to made-up tags do not use up those of the mailbox
// itself.
func placeOf(bare string, tagged bool) string {
	if tagged {
		return "+" + bare
	}
	return bare
}

func mailText(place string, at int64) string { return fmt.Sprintf("mailbox %d %s", at, place) }

// MailCode returns the code in a mail of that time. It proves access to the mailbox, whichever wallet the mail was sent
// for.
func (k *Keys) MailCode(email string, at int64) string {
	return k.all[0].sum(mailText(placeOf(mailbox(email)), at))
}

// GoodMailCode reports whether one of the keys made the code for an address. A code for a mailbox is good for its tags,
// and a code for one tag is good for any other. A code for a tag is not good for the mailbox without it, as a plus sign
// may be part of a mailbox's own name.
func (k *Keys) GoodMailCode(code, email string, at int64) bool {
	bare, tagged := mailbox(email)
	return k.good(code, mailText(placeOf(bare, tagged), at)) || tagged && k.good(code, mailText(bare, at))
}
