package notifier_test

import (
	"net/http"
	"testing"

	"github.com/lienstream/lienstream/topics/polltest"
)

// What was sent within the hour is counted, a request to confirm an address and an alert alike, and no longer pends.
func TestHealthCountsWhatWasSent(t *testing.T) {
	w := newTown(t, "kfake")
	health := func() string { return w.do(1, http.MethodGet, "/health", "") }
	w.want(health(), `200 {"ok":true,"pending":0,"sentLastHour":0}`)
	w.want(w.post(0, "email", "ann@example.com"), `200 {"confirm":{"by":"link","sent":true},"ok":true}`)
	link := linkIn(t, w.letters(1)[0])
	polltest.Until(t, "the request is counted", func() bool { return health() == `200 {"ok":true,"pending":0,"sentLastHour":1}` })
	w.do(0, http.MethodPost, link, confirmForm)
	w.due(1)
	w.letters(2)
	w.want(health(), `200 {"ok":true,"pending":0,"sentLastHour":2}`)
}
