package notifier_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/processors/notifier"
	serving "github.com/lienstream/lienstream/serving/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// hostile is a request, and its answer.
type hostile struct {
	name, method, path, body, want string
	reaches                        bool // the state, which refuses it
}

// stored is all that is stored of some wallets, as a node reads it.
func (h *house) stored(wallets ...common.Address) string {
	h.t.Helper()
	var all []any
	for _, wallet := range wallets {
		subs, err := h.client.Subscriptions(h.t.Context(), wallet)
		check(h.t, err)
		all = append(all, subs)
	}
	text, err := json.Marshal(all)
	check(h.t, err)
	return string(text)
}

// commands counts what was written to the topic of commands.
func (h *house) commands() (n int) {
	h.t.Helper()
	for p := range h.cat.Partitions {
		check(h.t, kafka.ReadBack(h.t.Context(), h.cfg, h.cat.Commands(topics.AppNotifier), p, 0, func(*kafka.Record) bool { n++; return true }))
	}
	return n
}

func deleteBody(message string, signature []byte) string {
	body, _ := json.Marshal(map[string]string{"message": message, "signature": fmt.Sprintf("0x%x", signature)})
	return string(body)
}

// Each hostile request has its error, whichever node gets it, and changes nothing that is stored.
func TestHostileRequests(t *testing.T) {
	h := newHouse(t, "kfake")
	stranger, err := crypto.GenerateKey()
	check(t, err)
	wallet, other := addressOf(h.wallet), addressOf(stranger)
	lower, email := strings.ToLower(wallet.Hex()), "ann@example.com"

	// What is there: two channels of the wallet and one of a stranger; a captured request that was replaced since, and
	// one whose subscription has ended.
	subscribe := func(key *ecdsa.PrivateKey, channel, address string) (body, message string) {
		at := strings.ToLower(addressOf(key).Hex())
		message = h.message(at, channel, address, h.next())
		body = postBody(at, channel, address, allPrefs, message, sign(t, key, message))
		h.want(h.do(0, http.MethodPost, "/notify", body), `200 {"ok":true}`)
		return body, message
	}
	ended, endedMessage := subscribe(h.wallet, "push", browser)
	end := h.message(lower, "push", browser, h.next())
	h.want(h.do(0, http.MethodDelete, "/notify/"+lower+"/push", deleteBody(end, sign(t, h.wallet, end))), `200 {"ok":true}`)
	replaced, replacedMessage := subscribe(h.wallet, "email", "old@example.com")
	captured, capturedMessage := subscribe(h.wallet, "email", email)
	subscribe(h.wallet, "telegram", "-1001234567")
	subscribe(stranger, "email", "bob@example.com")
	last := h.now
	for range 3 {
		h.next() // fresh times, later than all that was accepted
	}

	at := func(unix int64) string { return h.message(lower, "email", email, unix) }
	ours := func(message string) []byte { return sign(t, h.wallet, message) }
	post := func(wallet, channel, address, message string, signature []byte) string {
		return postBody(wallet, channel, address, allPrefs, message, signature)
	}
	fresh := at(h.now)
	malleated := ours(fresh)
	copy(malleated[32:64], flip(malleated[32:64]))
	malleated[64] = 27 + 28 - malleated[64]
	zero := ours(fresh)
	zero[64] -= 27
	short := ours(fresh)[:64]
	now := time.Now().Unix()
	forOther := h.message(strings.ToLower(other.Hex()), "email", email, h.now)
	forChannel := h.message(lower, "telegram", email, h.now)
	forAddress := h.message(lower, "email", "eve@example.com", h.now)
	wrongCase := "0x" + swapCase(wallet.Hex()[2:])
	huge := strings.Repeat("x", 1<<20)

	var all []hostile
	posts := func(name, body, want string, reaches ...bool) {
		all = append(all, hostile{name, http.MethodPost, "/notify", body, want, len(reaches) > 0})
	}
	deletes := func(name, path, body, want string, reaches ...bool) {
		all = append(all, hostile{name, http.MethodDelete, "/notify/" + path, body, want, len(reaches) > 0})
	}
	const reaches = true
	posts("replayed POST", captured, "401 SIGNATURE_REUSED", reaches)
	posts("replayed POST that was replaced", replaced, "401 SIGNATURE_REUSED", reaches)
	posts("replayed POST of what has ended", ended, "401 SIGNATURE_REUSED", reaches)
	posts("replayed DELETE as POST", post(lower, "push", browser, end, ours(end)), "401 SIGNATURE_REUSED", reaches)
	for name, auth := range map[string]string{"padded too much": `"BTBZMqHH6r4Tts7J_aSIgg===="`, "with a line break": `"BTBZ\nMqHH6r4Tts7J_aSIgg"`} {
		unreadable := strings.Replace(browser, `"BTBZMqHH6r4Tts7J_aSIgg"`, auth, 1)
		m := h.message(lower, "push", unreadable, h.now)
		posts("push keys "+name, post(lower, "push", unreadable, m, ours(m)), "400 INVALID_INPUT")
	}
	deletes("replayed POST as DELETE", lower+"/email", deleteBody(capturedMessage, ours(capturedMessage)), "401 SIGNATURE_REUSED", reaches)
	deletes("replaced POST as DELETE", lower+"/email", deleteBody(replacedMessage, ours(replacedMessage)), "400 INVALID_INPUT")
	deletes("ended POST as DELETE", lower+"/push", deleteBody(endedMessage, ours(endedMessage)), "404 NOT_FOUND")
	deletes("replayed DELETE", lower+"/push", deleteBody(end, ours(end)), "404 NOT_FOUND")
	for name, m := range map[string]struct {
		message, want string
		reaches       []bool
	}{
		"old, though fresh":  {at(last - 10), "401 SIGNATURE_REUSED", []bool{reaches}},
		"expired":            {at(now - 302), "401 SIGNATURE_EXPIRED", nil},
		"future":             {at(now + 90), "401 SIGNATURE_EXPIRED", nil},
		"no time":            {strings.TrimSuffix(fresh, fmt.Sprint(" ", h.now)), "400 INVALID_INPUT", nil},
		"negative time":      {at(-h.now), "400 INVALID_INPUT", nil},
		"time with zeros":    {strings.TrimSuffix(fresh, fmt.Sprint(h.now)) + fmt.Sprint("0", h.now), "400 INVALID_INPUT", nil},
		"time overflows":     {strings.TrimSuffix(fresh, fmt.Sprint(h.now)) + strings.Repeat("9", 40), "400 INVALID_INPUT", nil},
		"for another wallet": {forOther, "400 INVALID_INPUT", nil}, "for another channel": {forChannel, "400 INVALID_INPUT", nil},
		"for another address": {forAddress, "400 INVALID_INPUT", nil}, "another word": {"x" + fresh, "400 INVALID_INPUT", nil},
		"with a line behind":             {fresh + "\r\n", "400 INVALID_INPUT", nil},
		"wallet in capitals":             {strings.Replace(fresh, lower, "0x"+strings.ToUpper(lower[2:]), 1), "400 INVALID_INPUT", nil},
		"wallet with another's checksum": {strings.Replace(fresh, lower, wrongCase, 1), "400 INVALID_INPUT", nil},
		"channel in capitals":            {strings.Replace(fresh, " email ", " Email ", 1), "400 INVALID_INPUT", nil},
		"address in capitals":            {strings.Replace(fresh, email, "Ann@example.com", 1), "400 INVALID_INPUT", nil},
	} {
		posts(name, post(lower, "email", email, m.message, ours(m.message)), m.want, m.reaches...)
		deletes(name, lower+"/email", deleteBody(m.message, ours(m.message)), m.want, m.reaches...)
	}
	equal := h.message(lower, "email", "eve@example.com", last-2) // as the captured one, for another address
	posts("equal time", post(lower, "email", "eve@example.com", equal, ours(equal)), "401 SIGNATURE_REUSED", reaches)
	spelled := strings.Replace(capturedMessage, lower, wallet.Hex(), 1)
	posts("equal time in the other spelling", post(lower, "email", email, spelled, ours(spelled)), "401 SIGNATURE_REUSED", reaches)
	deletes("equal time in the other spelling", lower+"/email", deleteBody(spelled, ours(spelled)), "401 SIGNATURE_REUSED", reaches)
	for name, signature := range map[string][]byte{
		"malleated": malleated, "v of 0 or 1": zero, "of 64 bytes": short, "a stranger's": sign(t, stranger, fresh), "of another message": ours(fresh + "1"),
		"zeros": make([]byte, 65),
	} {
		posts("signature "+name, post(lower, "email", email, fresh, signature), "401 INVALID_SIGNATURE")
		deletes("signature "+name, lower+"/email", deleteBody(fresh, signature), "401 INVALID_SIGNATURE")
	}
	posts("empty signature", post(lower, "email", email, fresh, nil), "400 INVALID_INPUT")
	posts("signature that is long", post(lower, "email", email, fresh, make([]byte, 8<<10+1)), "413 BODY_TOO_LARGE")
	// Only the wallet learns whether an address is the stored one.
	deletes("a stranger guesses the address", lower+"/email", deleteBody(forAddress, sign(t, stranger, forAddress)), "401 INVALID_SIGNATURE")

	posts("body for another wallet", post(other.Hex(), "email", email, fresh, ours(fresh)), "400 INVALID_INPUT")
	posts("a stranger's wallet, signed by the stranger", post(lower, "email", email, forOther, sign(t, stranger, forOther)), "400 INVALID_INPUT")
	posts("body for another channel", post(lower, "telegram", "5", fresh, ours(fresh)), "400 INVALID_INPUT")
	posts("body for another address", post(lower, "email", "eve@example.com", fresh, ours(fresh)), "400 INVALID_INPUT")
	posts("body with another's checksum", post(wrongCase, "email", email, fresh, ours(fresh)), "400 INVALID_INPUT")
	posts("body with a channel in capitals", post(lower, "Email", email, fresh, ours(fresh)), "400 INVALID_INPUT")
	deletes("path with another's checksum", wrongCase+"/email", deleteBody(fresh, ours(fresh)), "400 INVALID_INPUT")
	deletes("path with a channel in capitals", lower+"/Email", deleteBody(fresh, ours(fresh)), "400 INVALID_INPUT")

	for channel, addresses := range map[string][]string{
		"email": {
			"a@example.com\r\nBcc: b@example.com", "a@example.com\nX: y", "a@example.com\r", "a@example.com%0d%0aBcc: b", "\r\na@example.com",
			"a@example.com, b@example.com", "a@example.com;b@example.com", "<a@example.com>", "A <a@example.com>", `"a b"@example.com`, "a@b@example.com",
			"a@example.com\u0085Bcc: b", "a\u2028@example.com", "a@example.com\u202e", "a@example.com\x00", "a@example", "", "@example.com",
			"a@example.com> SIZE=1", strings.Repeat("a", 250) + "@example.com", "a+" + strings.Repeat("x", 63) + "@example.com",
			"änn@example.com", "ann\ufe0f@example.com", "ann@b\u00fc_cher.de", "ann@example。", "a@" + strings.Repeat("é.", 80) + "example.com",
		},
		"telegram": {"5\r\n6", "+5", "05", "0", "5 6", "@channel", "99999999999999999999", "-"},
		"push": {
			"{}", "x", strings.Replace(browser, "https:", "http:", 1), browser + "\r\n", strings.Replace(browser, "/p", `/p\r\nHost: x`, 1),
			strings.Replace(browser, "push.lienstream.dev", "127.0.0.1", 1), strings.Replace(browser, "push.lienstream.dev", "localhost", 1),
			strings.Replace(browser, "push.lienstream.dev", "169.254.169.254", 1), strings.Replace(browser, "push.lienstream.dev", "2130706433", 1),
			strings.Replace(browser, "push.lienstream.dev", "0x7f.1", 1), strings.Replace(browser, "push.lienstream.dev", "[::ffff:10.0.0.1]", 1),
			strings.Replace(browser, "push.lienstream.dev", "u:p@push.lienstream.dev", 1), strings.Replace(browser, "push.lienstream.dev", "push.lienstream.dev:22", 1),
			strings.Replace(browser, "push.lienstream.dev", "redis.internal", 1), strings.Replace(browser, "push.lienstream.dev", "redis。ｉnternal", 1),
			strings.Replace(browser, "push.lienstream.dev", "１２７.0.0.1", 1), strings.Replace(browser, "push.lienstream.dev", "ü_.lienstream.dev", 1), strings.Replace(browser, `"auth":"`, `"auth":"A`, 1),
		},
	} {
		for _, address := range addresses {
			m := h.message(lower, channel, address, h.now)
			posts(fmt.Sprintf("%s %.60q", channel, address), post(lower, channel, address, m, ours(m)), "400 INVALID_INPUT")
		}
	}
	posts("preferences lack one", postBody(lower, "email", email, `{"t48":true}`, fresh, ours(fresh)), "400 INVALID_INPUT")
	posts("an eighth preference", postBody(lower, "email", email, strings.TrimSuffix(allPrefs, "}")+`,"x":true}`, fresh, ours(fresh)), "400 INVALID_INPUT")
	posts("a field too many", strings.Replace(post(lower, "email", email, fresh, ours(fresh)), "{", `{"extra":1,`, 1), "400 INVALID_INPUT")
	posts("a megabyte", strings.Replace(post(lower, "email", email, fresh, ours(fresh)), email, huge, 1), "413 BODY_TOO_LARGE")
	posts("a megabyte of spaces", post(lower, "email", email, fresh, ours(fresh))+strings.Repeat(" ", 1<<20), "413 BODY_TOO_LARGE")
	deletes("a megabyte", lower+"/email", deleteBody(fresh+huge, ours(fresh)), "413 BODY_TOO_LARGE")

	before, written := h.stored(wallet, other), h.commands()
	for i, c := range all {
		if got := h.do(i%2, c.method, c.path, c.body); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.method, c.name, got, c.want)
		}
		if c.reaches {
			written++
		}
		if after := h.stored(wallet, other); after != before {
			t.Fatalf("%s %s: stored is\n%s\nand was\n%s", c.method, c.name, after, before)
		}
	}
	if n := h.commands(); n != written {
		t.Errorf("%d commands were written, want %d", n, written)
	}
	// And what all of it was made of is good: it changes what is stored.
	h.want(h.do(0, http.MethodPost, "/notify", post(lower, "email", email, fresh, ours(fresh))), `200 {"ok":true}`)
	if h.stored(wallet, other) == before {
		t.Error("a good request changed nothing")
	}
}

// The limits of a message's age are exact.
func TestFreshness(t *testing.T) {
	h := newHouse(t, "kfake")
	now := time.Unix(2_000_000_000, 999_999_999)
	for _, c := range []struct {
		unix int64
		good bool
	}{{now.Unix() - 301, false}, {now.Unix() - 300, true}, {now.Unix(), true}, {now.Unix() + 60, true}, {now.Unix() + 61, false}} {
		if err := h.services[0].Fresh(c.unix, now); (err == nil) != c.good {
			t.Errorf("%d s ago: %v", now.Unix()-c.unix, err)
		}
	}
}

// A wallet that subscribes a hundred times has one subscription on each channel, the last; one time is accepted once.
func TestAHundredSubscriptions(t *testing.T) {
	h := newHouse(t, "kfake")
	wallet := addressOf(h.wallet)
	lower := strings.ToLower(wallet.Hex())
	ask := func(n int, unix int64) string {
		address := fmt.Sprintf("a%d@example.com", n)
		m := h.message(lower, "email", address, unix)
		return h.do(n%2, http.MethodPost, "/notify", postBody(lower, "email", address, allPrefs, m, sign(t, h.wallet, m)))
	}
	only := func(unix int64) notifier.Subscription {
		t.Helper()
		subs, err := h.client.Subscriptions(t.Context(), wallet)
		check(t, err)
		if len(subs) != 1 || subs[0].Unix != unix {
			t.Fatalf("stored is %+v, want one of %d", subs, unix)
		}
		return subs[0]
	}
	for n := range 100 {
		h.want(ask(n, h.next()), `200 {"ok":true}`)
	}
	created := only(h.now).CreatedAt

	// All at once: at a time of their own each, and then all at the same.
	for _, same := range []bool{false, true} {
		first := h.now + 1
		got := make([]string, 100)
		var wg sync.WaitGroup
		for n := range 100 {
			wg.Go(func() {
				unix := first
				if !same {
					unix += int64(n)
				}
				got[n] = ask(n, unix)
			})
		}
		wg.Wait()
		answers, accepted := map[string]int{}, 0
		for n, a := range got {
			if answers[a]++; a == `200 {"ok":true}` {
				accepted = n
			}
		}
		t.Logf("same time: %v: %v", same, answers)
		if n := answers[`200 {"ok":true}`]; n == 0 || same && n != 1 {
			t.Errorf("%d were accepted", n)
		}
		if answers[`200 {"ok":true}`]+answers["401 SIGNATURE_REUSED"]+answers["429 RATE_LIMITED"] != 100 {
			t.Errorf("answers: %v", answers)
		}
		h.now = first
		if !same {
			h.now += int64(accepted)
		}
		if sub := only(h.now); sub.CreatedAt != created {
			t.Error("it is another subscription")
		}
		if same {
			keys, err := notifier.ParseKeys(keyText)
			check(t, err)
			address, err := keys.Open(wallet, notifier.Email, only(h.now).Sealed)
			check(t, err)
			if want := fmt.Sprintf("a%d@example.com", accepted); address != want {
				t.Errorf("stored is %s, accepted was %s", address, want)
			}
		}
	}
}

// Wallets cost nothing: a client writes so many subscriptions, whatever wallets sign them, and the next one is not its affair.
func TestAStrangersWallets(t *testing.T) {
	h := newHouse(t, "kfake")
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	cfg := serving.DefaultConfig()
	cfg.Writes, cfg.Burst = 1e-6, 3
	s, err := serving.New(cfg, h.client, h.over(h.chain.HTTP()), keys, h.log, h.metrics.New())
	check(t, err)
	h.services = append(h.services, s)
	from := func(client string) string {
		key, err := crypto.GenerateKey()
		check(t, err)
		wallet := strings.ToLower(addressOf(key).Hex())
		m := h.message(wallet, "email", "a@example.com", h.next())
		req := httptest.NewRequest(http.MethodPost, "/notify", strings.NewReader(postBody(wallet, "email", "a@example.com", allPrefs, m, sign(t, key, m))))
		req.Header.Set("Content-Type", "application/json")
		req.RemoteAddr = client
		got := h.answer(len(h.services)-1, req)
		if listed := h.do(0, http.MethodGet, "/notify/"+wallet, ""); strings.Contains(listed, "example.com") != strings.HasPrefix(got, "200") {
			t.Errorf("%s, but stored is %s", got, listed)
		}
		return got
	}
	for range 3 {
		h.want(from("198.51.100.7:1000"), `200 {"ok":true}`)
	}
	h.want(from("198.51.100.7:1001"), "429 RATE_LIMITED")
	h.want(from("198.51.100.8:1000"), `200 {"ok":true}`)
	h.want(from("127.0.0.1:1000"), `200 {"ok":true}`)
	for i := range 5 * 3 { // a network, with any number of clients
		h.want(from(fmt.Sprintf("[2001:db8:7:%x::1]:1000", i/3)), `200 {"ok":true}`)
	}
	h.want(from("[2001:db8:7:ffff::1]:1000"), "429 RATE_LIMITED")
	h.want(from("[2001:db8:8::1]:1000"), `200 {"ok":true}`)
}

// browser is a browser's subscription to a push service.
const browser = `{"endpoint":"https://push.lienstream.dev/p","keys":{"p256dh":"BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4","auth":"BTBZMqHH6r4Tts7J_aSIgg"}}`

// flip is the other s of a signature.
func flip(s []byte) []byte {
	n := crypto.S256().Params().N
	out := make([]byte, 32)
	return new(big.Int).Sub(n, common.BytesToHash(s).Big()).FillBytes(out)
}

func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'f':
			return r - 32
		case r >= 'A' && r <= 'F':
			return r + 32
		}
		return r
	}, s)
}
