package notifier

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
)

// FuzzAddresses: an address that is accepted is shown in part only.
func FuzzAddresses(f *testing.F) {
	for _, address := range []string{
		"anna@example.com", "-1001234567", `{"endpoint":"https://push.example.com/x","keys":{"p256dh":"BA","auth":"AAAAAAAAAAAAAAAAAAAAAA"}}`,
	} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, address string) {
		for name, check := range map[string]func(string) (string, error){"email": checkEmail, "chat": checkChat, "push": checkPush} {
			if mask, err := check(address); (err == nil) != (mask != "") || err == nil && mask == address {
				t.Errorf("%s: %q is shown as %q: %v", name, address, mask, err)
			}
		}
	})
}

// FuzzReadMessage: a signed message says one thing only: it is the one that its parts make.
func FuzzReadMessage(f *testing.F) {
	wallet := common.Address{1}
	prefix := "enable notify " + strings.ToLower(wallet.Hex()) + " email "
	f.Add(prefix + "anna@example.com 1790000000")
	f.Add(prefix + "a 0")
	f.Fuzz(func(t *testing.T, message string) {
		m, err := readMessage("enable", message, wallet, "email")
		if err != nil {
			return
		}
		made := m.address + " " + strconv.FormatInt(m.unix, 10)
		if m.unix <= 0 || !strings.HasSuffix(message, made) || len(message) != len(prefix)+len(made) {
			t.Errorf("%q is read as %q at %d", message, m.address, m.unix)
		}
	})
}

// FuzzReadStart: what a chat sends names a wallet only by a whole code.
func FuzzReadStart(f *testing.F) {
	code := startCode(common.Address{1}, strings.Repeat("ab", startBytes-common.AddressLength))
	f.Add("/start " + code)
	f.Add("/start")
	f.Add("/start@lien_bot " + code)
	f.Fuzz(func(t *testing.T, text string) {
		wallet, code, ok := readStart(text)
		_, sent, _ := strings.Cut(text, " ")
		sent = strings.NewReplacer("\n", "", "\r", "").Replace(sent) // which base64 skips
		if ok && startCode(wallet, code) != strings.TrimSpace(sent) {
			t.Errorf("%q is read as %s and %s", text, wallet, code)
		}
	})
}

// FuzzDecodeUpdate: what is read of an update is the same once it is written and read again.
func FuzzDecodeUpdate(f *testing.F) {
	f.Add([]byte(`{"update_id":1,"message":{"chat":{"id":-1001234567},"text":"/start"}}`))
	f.Add([]byte(`{"update_id":1,"edited_message":{"text":"no"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, body []byte) {
		u, err := decodeUpdate(body)
		if err != nil {
			return
		}
		text, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeUpdate(text); err != nil || again != u {
			t.Errorf("%q is %+v, and then %+v: %v", body, u, again, err)
		}
	})
}
