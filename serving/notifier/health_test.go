package notifier_test

import (
	"net/http"
	"testing"
)

// The alerts that were sent within the hour are counted, and no longer pend. A mail that asks for an address to be confirmed, which
// anybody has sent, is none.
func TestHealthCountsWhatWasSent(t *testing.T) {
	w := newTown(t, "kfake")
	health := func() string { return w.do(1, http.MethodGet, "/health", "") }
	w.want(health(), `200 {"ok":true,"pending":0,"sentLastHour":0}`)
	w.want(w.post(0, "email", "ann@example.com"), `200 {"confirm":{"by":"link","sent":true},"ok":true}`)
	link := linkIn(t, w.letters(1)[0])
	w.want(health(), `200 {"ok":true,"pending":0,"sentLastHour":0}`)
	w.do(0, http.MethodPost, link, confirmForm)
	w.due(1)
	w.letters(2)
	w.want(health(), `200 {"ok":true,"pending":0,"sentLastHour":1}`)
}
