package notifier

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"html/template"
	"math"
	"net/http"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// linkQuery are the query parameters of an unsubscribe link: the wallet, the channel, and a token for both. at is the
// time of a confirmation mail.
var linkQuery = []string{"wallet", "channel", "at", "token"}

//go:embed unsubscribe.html
var pageText string

var page = template.Must(template.New("unsubscribe").Parse(pageText))

const (
	oneClickField = "List-Unsubscribe"
	oneClickValue = "One-Click"
)

// maxFormBytes keeps a form in memory, of either encoding; the API's own limit is lower.
const maxFormBytes = 1 << 20

// linked finds the subscription of an unsubscribe link; nil: the link does not end it. alive: there is one, but it
// began later, has another address, or its links are made with another key now.
func (s *Service) linked(ctx context.Context, req *httpapi.Request) (wallet common.Address, sub *notifier.Subscription, alive bool, err error) {
	given := req.Query("wallet").Address()
	number := httpapi.Enum[uint8](req.Query("channel"), channelNames)
	at := req.Query("at").Integer(0, math.MaxInt64)
	if err := req.Err(); err != nil {
		return wallet, nil, false, err
	}
	if given == nil || number == nil {
		return wallet, nil, false, invalid("token", "needs a wallet and a channel")
	}
	one, err := s.stored(ctx, *given, notifier.Channels[*number])
	if err != nil {
		return wallet, nil, false, s.unavailable(err)
	}
	if !one.Active() {
		return *given, nil, false, nil
	}
	token := req.HTTP.URL.Query().Get("token")
	if at != nil {
		is, err := s.with(*given, &one, func(address string) bool { return s.keys.GoodRefusal(token, *given, *at, address) })
		return *given, is, true, err
	}
	address, err := s.open(*given, &one)
	if err != nil {
		return wallet, nil, false, err
	}
	if !s.keys.GoodLink(token, *given, one.Channel, one.CreatedAt, address) {
		return *given, nil, true, nil
	}
	return *given, &one, true, nil
}

// confirm shows a page with a button that ends the subscription, since programs may follow links automatically.
func (s *Service) confirm(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	_, sub, alive, err := s.linked(ctx, req)
	if err != nil {
		return err
	}
	return s.show(res, sub, !alive)
}

// oneClick ends the subscription, for mail programs (RFC 8058) and for the page.
func (s *Service) oneClick(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	// Mail programs send either encoding, of which RFC 8058 prefers multipart/form-data.
	err := req.HTTP.ParseMultipartForm(maxFormBytes)
	if errors.Is(err, http.ErrNotMultipart) {
		err = nil // it was parsed as the other encoding
	}
	if sent := req.HTTP.PostForm[oneClickField]; err != nil || len(sent) != 1 || sent[0] != oneClickValue {
		return invalid("body", "must be the form "+oneClickField+"="+oneClickValue)
	}
	for range maxChanges {
		wallet, sub, alive, err := s.linked(ctx, req)
		if err != nil {
			return err
		}
		if sub == nil {
			return s.show(res, nil, !alive)
		}
		outcome, err := s.end(ctx, wallet, sub)
		if err != nil {
			return s.unavailable(err)
		}
		if outcome == notifier.Accepted {
			return s.show(res, sub, true)
		}
	}
	return s.unavailable(errChanged)
}

// end ends the alerts to the address of a subscription, or the request to confirm it.
func (s *Service) end(ctx context.Context, wallet common.Address, sub *notifier.Subscription) (notifier.Outcome, error) {
	if sub.ConfirmBy != 0 {
		return s.store.Refuse(ctx, &notifier.Confirmation{ID: newID(), Wallet: wallet, Channel: sub.Channel, Unix: sub.Unix})
	}
	return s.store.Unsubscribe(ctx, &notifier.Unsubscribe{ID: newID(), Wallet: wallet, Channel: sub.Channel, Since: sub.CreatedAt, Of: sub.Unix})
}

// show shows the state of the subscription. It must be clear if the subscription has not ended.
func (s *Service) show(res *httpapi.Response, sub *notifier.Subscription, ended bool) error {
	var mask string
	if sub != nil {
		mask = sub.Mask
	}
	if sub == nil && !ended {
		res.Status = http.StatusNotFound
	}
	return showPage(res, page, map[string]any{"Mask": mask, "Ended": ended})
}

// showPage responds with a page of one form and no scripts.
func showPage(res *httpapi.Response, page *template.Template, facts any) error {
	var b bytes.Buffer
	if err := page.Execute(&b, facts); err != nil {
		return err
	}
	res.SetHeader("Content-Type", "text/html; charset=utf-8")
	res.SetHeader("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'")
	res.SetHeader("Referrer-Policy", "no-referrer")
	res.Body = append(res.Body, b.Bytes()...)
	return nil
}
