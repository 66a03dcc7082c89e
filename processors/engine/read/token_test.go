package read

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestWhoHasNoTokenMayServeItsOwnMachineOnly(t *testing.T) {
	const token = "0123456789abcdef"
	for _, c := range []struct {
		token, listen string
		ok            bool
	}{
		{"", "127.0.0.1:42070", true},
		{"", "[::1]:42070", true},
		{"", "localhost:0", true},
		{"", ":42070", false},
		{"", "0.0.0.0:42070", false},
		{"", "10.0.0.1:42070", false},
		{"", "processors-0:42070", false},
		{"", "nonsense", false},
		{token, ":42070", true},
		{token, "127.0.0.1:42070", true},
		{token[1:], ":42070", false},
		{token[1:], "127.0.0.1:42070", false},
	} {
		if err := CheckToken(c.token, c.listen); (err == nil) != c.ok {
			t.Errorf("%q at %q: %v", c.token, c.listen, err)
		}
	}
}

func TestOnlyWhoKnowsTheTokenIsServed(t *testing.T) {
	const token = "0123456789abcdef"
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	for _, c := range []struct {
		of, sent string
		want     int
	}{
		{token, "Bearer " + token, http.StatusNoContent},
		{token, "", http.StatusUnauthorized},
		{token, token, http.StatusUnauthorized},
		{token, "Bearer " + token + "0", http.StatusUnauthorized},
		{token, "Bearer ", http.StatusUnauthorized},
		{"", "", http.StatusNoContent},
	} {
		r := httptest.NewRequest(http.MethodPost, Path, nil)
		r.Header.Set(authorizationHeader, c.sent)
		w := httptest.NewRecorder()
		if Authorized(c.of, served).ServeHTTP(w, r); w.Code != c.want {
			t.Errorf("%q with %q: %d, want %d", c.of, c.sent, w.Code, c.want)
		}
	}
}
