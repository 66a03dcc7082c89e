package support

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/prometheus/client_golang/prometheus/testutil"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/topics/polltest"
)

// Staff answer and decide; a deposit is returned once, by a transaction whose log says so.
func TestStaff(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	ctx, payer := t.Context(), w.chain.Address("payer")
	id, token := s.post(w.header(w.pay(w.chain.Key("payer"), "1")), body("Drain")).created(t)
	staff := w.staff()

	stranger := staff
	stranger.Key = w.chain.Key("eve")
	if err := stranger.Decide(ctx, id, desk.Accepted, false); err == nil || !strings.Contains(err.Error(), w.chain.Address("eve").Hex()) {
		t.Errorf("another's key under a name: %v", err)
	}
	stranger.Key = nil
	if err := stranger.Reply(ctx, id, "x"); err == nil {
		t.Error("answered without a key")
	}
	var mails []string
	staff.Page, staff.Mail = "https://support.example/t/", func(_ context.Context, to, subject, text string) error {
		mails = append(mails, to, subject, text)
		return nil
	}
	check(t, staff.Reply(ctx, id, "Thank you. <script>alert(1)</script> [a](javascript:alert(1))"))
	if all := strings.Join(mails, "\n"); len(mails) != 3 || mails[0] != "a@example.com" || !strings.Contains(all, id) || strings.Contains(all, token) || strings.Contains(all, "Thank you") {
		t.Errorf("the mail: %q", mails)
	}
	check(t, staff.Decide(ctx, id, desk.Accepted, false))
	var list, show bytes.Buffer
	check(t, staff.List(ctx, &list))
	check(t, staff.Show(ctx, id, &show))
	if !strings.Contains(list.String(), id) || !strings.Contains(show.String(), "a@example.com") || !strings.Contains(list.String(), "OWED") {
		t.Errorf("list: %s\nshow: %s", &list, &show)
	}
	got := s.ticket(id, token)
	var ticket struct {
		Status, Outcome string
		Replies         []struct{ Body string }
		Deposit         struct {
			Refund struct{ Status, Transaction string }
		}
	}
	check(t, json.Unmarshal(got.body, &ticket))
	if ticket.Status != "CLOSED" || ticket.Outcome != "ACCEPTED" || len(ticket.Replies) != 1 || ticket.Deposit.Refund.Status != "OWED" {
		t.Errorf("the reporter sees %s", got.body)
	}
	if strings.Contains(string(got.body), `"ada"`) {
		t.Errorf("the reporter sees who answered: %s", got.body)
	}
	page := s.get("/t/"+id+"/content", token)
	if page.status != http.StatusOK || strings.Contains(string(page.body), "<script") || strings.Contains(string(page.body), "javascript:") ||
		!strings.Contains(string(page.body), "<strong>It</strong>") {
		t.Errorf("the page: %d %s", page.status, page.body)
	}

	polltest.Until(t, "the payment is final", func() bool { return w.ticketOf(id).Status == desk.StatusFinal })
	check(t, staff.ByHand(ctx, id, w.chain.Client()))
	receipts := w.chain.Client()
	w.fund(w.chain.Address("float"), 3*deposit)
	wrong, err := w.chain.Call(ctx, "float", "transfer", payer, big.NewInt(1))
	check(t, err)
	right, err := w.chain.Call(ctx, "float", "transfer", payer, big.NewInt(deposit))
	check(t, err)
	polltest.Until(t, "the refund is deep", func() bool {
		head, err := receipts.BlockNumber(ctx)
		return err == nil && head > right.BlockNumber.Uint64()+3
	})
	if err := staff.Refunded(ctx, id, receipts, wrong.TxHash, 3); err == nil {
		t.Error("a transfer of less was taken for the refund")
	}
	if err := staff.Refunded(ctx, id, receipts, right.TxHash, 1000); err == nil {
		t.Error("a refund was taken before it was deep")
	}
	check(t, staff.Refunded(ctx, id, receipts, right.TxHash, 3))
	if err := staff.Refunded(ctx, id, receipts, right.TxHash, 3); err == nil {
		t.Error("a refund was recorded twice")
	}
	if err := staff.Decide(ctx, id, desk.Rejected, false); err == nil {
		t.Error("decided anew once the deposit was gone")
	}
	check(t, json.Unmarshal(s.ticket(id, token).body, &ticket))
	if ticket.Deposit.Refund.Status != "CONFIRMED" || ticket.Deposit.Refund.Transaction != right.TxHash.Hex() {
		t.Errorf("refund %+v", ticket.Deposit.Refund)
	}
}

// Old keys open what they made; a key that is gone opens nothing.
func TestKeysAreChanged(t *testing.T) {
	t.Parallel()
	end := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	tokens := func(text string) []TokenKey {
		t.Helper()
		keys, err := ParseTokenKeys(text)
		check(t, err)
		return keys
	}
	before := Keys{Token: tokens("token-key-one,-of-thirty-two-bytes\n"), Text: ParseTextKeys("text-key-one,-of-thirty-two-bytes")}
	after := Keys{
		Token: tokens("token-key-two,-of-thirty-two-bytes\n\n token-key-one,-of-thirty-two-bytes  2027-01-31T02:00:00+02:00\n"),
		Text:  ParseTextKeys("text-key-two,-of-thirty-two-bytes\ntext-key-one,-of-thirty-two-bytes\n"),
	}
	later := Keys{Token: after.Token[:1], Text: after.Text[:1]}
	check(t, after.Validate())
	sealed, err := before.Seal(purposeReport, "a", []byte("secret"))
	check(t, err)
	if text, err := after.Open(purposeReport, "a", sealed); err != nil || string(text) != "secret" {
		t.Errorf("an old key does not open: %q %v", text, err)
	}
	for _, wrong := range []func() ([]byte, error){
		func() ([]byte, error) { return later.Open(purposeReport, "a", sealed) },
		func() ([]byte, error) { return after.Open(purposeReport, "b", sealed) },
		func() ([]byte, error) { return after.Open(purposeReply, "a", sealed) },
		func() ([]byte, error) { return after.Open(purposeReport, "a", sealed[:8]) },
	} {
		if text, err := wrong(); err == nil {
			t.Errorf("opened: %q", text)
		}
	}
	for _, c := range []struct {
		keys  Keys
		token string
		at    time.Time
		want  bool
	}{
		{after, before.Ticket("a"), end.Add(-time.Second), true},
		{after, before.Ticket("a"), end, false},
		{after, after.Ticket("a"), end, true},
		{after, after.Ticket("b"), end, false},
		{later, before.Ticket("a"), end.Add(-time.Second), false},
	} {
		if got := c.keys.Opens("a", c.token, c.at); got != c.want {
			t.Errorf("at %s it opens: %v, want %v", c.at, got, c.want)
		}
	}
	for _, wrong := range []Keys{
		{Token: tokens("short"), Text: after.Text},
		{Token: after.Token[1:], Text: after.Text}, // the one in use would end
		{Token: after.Token},
	} {
		if err := wrong.Validate(); err == nil || strings.Contains(err.Error(), `"short"`) {
			t.Errorf("faults: %v", err)
		}
	}
	for _, wrong := range []string{"a-secret tomorrow", "a-secret 2027-01-31T00:00:00Z more", "first\na-secret 2027-01-31"} {
		if _, err := ParseTokenKeys(wrong); err == nil || strings.Contains(err.Error(), "a-secret") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// A wrong token costs the work of a right one: every key is tried, whichever fits and whether it still counts.
func TestATokenCostsTheSame(t *testing.T) {
	keys := Keys{Token: []TokenKey{
		{Secret: "token key three, of thirty-two bytes"}, {Secret: "token key two, of thirty-two bytes", Until: time.Unix(1, 0)}, {Secret: "token key one, of thirty-two bytes"},
	}}
	work := func(token string) float64 {
		return testing.AllocsPerRun(100, func() { keys.Opens("a", token, time.Now()) })
	}
	right := keys.Ticket("a")
	want := work(right)
	for name, token := range map[string]string{
		"the last character wrong": right[:len(right)-1] + "_", "the first": "_" + right[1:], "another ticket's": keys.Ticket("b"),
		"an ended key's": ticketToken(keys.Token[1].Secret, "a"), "the oldest key's": ticketToken(keys.Token[2].Secret, "a"),
	} {
		if got := work(token); got != want {
			t.Errorf("%s: %v allocations, a right one takes %v", name, got, want)
		}
	}
}

// reference runs the command that `up` prints, with variables and with arguments behind the service's URL.
func (x *service) reference(env []string, args ...string) (out string, err error) {
	x.t.Helper()
	if _, err := os.Stat("../clients/node_modules/@x402/fetch"); err != nil {
		if os.Getenv("CI") != "" {
			x.t.Fatal(err)
		}
		x.t.Skip("serving/clients is not installed: npm ci there")
	}
	command := exec.CommandContext(x.t.Context(), "node", append([]string{"report/report.mjs", x.url}, args...)...)
	command.Dir = "../clients"
	command.Env = append(os.Environ(), env...)
	text, err := command.CombinedOutput()
	return string(text), err
}

// payer is the variable that has an account's key.
func (w *world) payer(name string) string {
	return "PAYER_KEY=" + hexutil.Encode(crypto.FromECDSA(w.chain.Key(name)))
}

// A payment with the command that `up` prints gets its ticket, though the chain is slow.
func TestTheReferenceClientIsPatient(t *testing.T) {
	w := newWorld(t)
	w.cfg.Wait = 200 * time.Millisecond
	s := w.start(w.deps(w.relayer("relayer")))
	out, err := s.reference([]string{w.payer("payer"), "PATIENCE_SECONDS=0"})
	_, rest, told := strings.Cut(out, "PAYMENT_SIGNATURE=")
	signature, _, _ := strings.Cut(rest, " ")
	if err == nil || !told || !strings.Contains(out, "PAYMENT_PENDING") {
		t.Fatalf("without patience: %v: %s", err, out)
	}
	mined := make(chan struct{})
	go func() { // once it has been asked again
		defer close(mined)
		polltest.Until(t, "it waits again", func() bool { return testutil.ToFloat64(s.metrics.reports.WithLabelValues("replay")) > 0 })
		w.mine()
	}()
	out, err = s.reference([]string{"PAYMENT_SIGNATURE=" + signature})
	<-mined
	if n := w.charges(w.chain.Address("payer")); err != nil || n != 1 || !strings.Contains(out, `"status": 201`) || !strings.Contains(out, "again in 5 s") {
		t.Errorf("charged %d times: %v: %s", n, err, out)
	}
}

// The reference client pays, with its spend controls set, and does not where they forbid it.
func TestTheReferenceClientPays(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	run := func(payer, most string, report ...string) (out string, err error) {
		return s.reference([]string{w.payer(payer), "MAX_PAYMENT=" + most}, report...)
	}
	if out, err := run("payer", "$14"); err == nil || w.paid() != 0 {
		t.Fatalf("paid more than its controls allow: %s", out)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.json")
	check(t, os.WriteFile(wrong, bytes.Replace(body("Wrong"), []byte("HIGH"), []byte("HUGE"), 1), 0o600))
	for name, c := range map[string]struct {
		payer  string
		report []string
		want   string
	}{
		"a report that is none": {"payer", []string{wrong}, `"status": 400`},
		"an empty wallet":       {"another", nil, `"status": 402`},
	} {
		if out, err := run(c.payer, "$15", c.report...); err != nil || !strings.Contains(out, c.want) || w.paid() != 0 {
			t.Errorf("%s: %s; the payee has %d: %v", name, out, w.paid(), err)
		}
	}
	out, err := run("payer", "$15")
	check(t, err)
	var got struct {
		Status  int
		Payment struct{ Transaction common.Hash }
		Body    struct {
			Ticket struct{ ID string }
			Token  string
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got.Status != http.StatusCreated || got.Payment.Transaction == (common.Hash{}) || w.paid() != deposit {
		t.Fatalf("%s; the payee has %d", out, w.paid())
	}
	if read := s.ticket(got.Body.Ticket.ID, got.Body.Token); read.status != http.StatusOK {
		t.Errorf("its ticket: %d %s", read.status, read.body)
	}
}

// stale is a desk whose first reads are of before what was written last.
type stale struct {
	desk.Reads
	left  int
	found desk.Found
}

func (r *stale) Find(ctx context.Context, partition int32, wallet common.Address, nonce common.Hash) (desk.Found, error) {
	if r.left--; r.left >= 0 {
		return r.found, nil
	}
	return r.Reads.Find(ctx, partition, wallet, nonce)
}

// Staff answer a ticket though the key of a former reply was removed, and its reporter is told.
func TestAReplyBehindOneThatNoKeyOpens(t *testing.T) {
	w := newWorld(t)
	w.mine()
	old := w.cfg.Keys
	w.cfg.Keys.Text = append([]string{"the next text key of tests, of thirty-two bytes"}, old.Text...)
	s := w.start(w.deps(w.relayer("relayer")))
	payment := w.header(w.pay(w.chain.Key("payer"), "old"))
	id, token := s.post(payment, body("Old")).created(t)
	staff, letters := w.staff(), 0
	staff.Mail = func(context.Context, string, string, string) error { letters++; return nil }
	staff.Keys = old
	check(t, staff.reply(t.Context(), id, "First."))
	staff.Keys.Text = w.cfg.Keys.Text[:1] // the old one is removed
	for range 2 {
		if err := staff.Reply(t.Context(), id, "Second."); err != nil {
			t.Error(err)
		}
	}
	if n := len(w.ticketOf(id).Ticket.Replies); n != 2 || letters != 2 {
		t.Errorf("%d replies and %d letters, want 2 and 2", n, letters)
	}

	s.stop()
	w.cfg.Keys.Text = w.cfg.Keys.Text[:1]
	s = w.start(w.deps(w.relayer("relayer")))
	s.post(payment, body("Old")).created(t)
	var ticket struct {
		Report  *struct{ Title string }
		Replies []struct{ Body *string }
	}
	got := s.ticket(id, token)
	check(t, json.Unmarshal(got.body, &ticket))
	if got.status != http.StatusOK || ticket.Report == nil || ticket.Report.Title != "Old" || len(ticket.Replies) != 2 || ticket.Replies[0].Body != nil || *ticket.Replies[1].Body != "Second." {
		t.Errorf("%d %s", got.status, got.body)
	}
	if page := s.get("/t/"+id+"/content", token); page.status != http.StatusOK || !strings.Contains(string(page.body), "Second.") || !strings.Contains(string(page.body), "cannot be read") {
		t.Errorf("%d %s", page.status, page.body)
	}
	s.stop()
	w.cfg.Keys.Text = []string{"another text key of tests, of thirty-two bytes"}
	s = w.start(w.deps(w.relayer("relayer")))
	if got := s.ticket(id, token); got.status != http.StatusOK || !strings.Contains(string(got.body), `"report":null`) || !strings.Contains(string(got.body), `"outcome":"PENDING"`) {
		t.Errorf("without any key: %d %s", got.status, got.body)
	}
	if page := s.get("/t/"+id+"/content", token); page.status != http.StatusOK || strings.Count(string(page.body), "cannot be read") != 3 {
		t.Errorf("without any key: %d %s", page.status, page.body)
	}
	var shown strings.Builder
	staff.Keys = w.cfg.Keys
	if err := staff.Show(t.Context(), id, &shown); !errors.Is(err, errSealed) || !strings.Contains(shown.String(), `"outcome": "PENDING"`) {
		t.Errorf("show: %v %s", err, shown.String())
	}
}

// A reply whose answer was lost is there once when it is sent again, and its letter is written then; another is
// another.
func TestAReplyIsSentAgain(t *testing.T) {
	w := newWorld(t)
	w.mine()
	s := w.start(w.deps(w.relayer("relayer")))
	signed := w.pay(w.chain.Key("payer"), "reply")
	id, _ := s.post(w.header(signed), body("Reply")).created(t)
	letters := 0
	staff := w.staff()
	staff.Mail = func(context.Context, string, string, string) error { letters++; return nil }
	reply := func(client *desk.Client, text string) error {
		as := staff
		as.Desk = client
		return as.Reply(t.Context(), id, text)
	}
	expect := func(replies, mails int) {
		t.Helper()
		if n := len(w.ticketOf(id).Ticket.Replies); n != replies || letters != mails {
			t.Errorf("%d replies and %d letters, want %d and %d", n, letters, replies, mails)
		}
	}
	before, err := w.client().Find(t.Context(), signed.From, signed.Nonce)
	check(t, err)
	lost := desk.NewClient(mortalSender{w.producer, newKiller(1)}, desk.Routed{Router: w.router}, w.cat) // after it was written
	if err := reply(lost, "Thank you.\n"); !errors.Is(err, desk.ErrUnavailable) {
		t.Fatalf("its answer was not lost: %v", err)
	}
	polltest.Until(t, "it is there", func() bool { return len(w.ticketOf(id).Ticket.Replies) == 1 })
	expect(1, 0)
	check(t, reply(w.client(), "Thank you."))
	expect(1, 1)
	// It was not yet applied when it was sent again: the desk takes one.
	again := desk.NewClient(w.producer, &stale{Reads: desk.Routed{Router: w.router}, left: 2, found: before}, w.cat)
	check(t, reply(again, "Thank you."))
	expect(1, 2)
	check(t, reply(w.client(), "Thank you, and more."))
	expect(2, 3)
	if err := reply(desk.NewClient(w.producer, &stale{Reads: desk.Routed{Router: w.router}, left: 2, found: before}, w.cat), "Something else."); err == nil {
		t.Error("another's change was not seen")
	}
	expect(2, 3)
}

// The list of tickets shows the payments behind an alert too: the wallets with an undecided one, and since when.
func TestTheListHasUndecidedPayments(t *testing.T) {
	w := newWorld(t)
	signed := w.pay(w.chain.Key("payer"), "undecided")
	w.reserved(signed, body("Undecided"))
	id := desk.TicketID(signed.From, signed.Nonce)
	list := func() string {
		var out bytes.Buffer
		check(t, w.staff().List(t.Context(), &out))
		return out.String()
	}
	if text := list(); !strings.Contains(text, id) || !strings.Contains(text, "reserved") || !strings.Contains(text, signed.From.Hex()) {
		t.Errorf("the list: %s", text)
	}
	of := authorizationOf(signed)
	outcome, _, err := w.client().Do(t.Context(), signed.From, &desk.Command{Kind: desk.Void, Nonce: signed.Nonce, Reserved: 1, Authorization: &of})
	if err != nil || outcome != desk.Done {
		t.Fatal(outcome, err)
	}
	if text := list(); strings.Contains(text, id) {
		t.Errorf("void, and listed: %s", text)
	}
}
