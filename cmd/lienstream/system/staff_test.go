package system

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/devchain/paychain"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/polltest"
)

// mailbox is a mail server. It refuses the first message.
type mailbox struct {
	mu      sync.Mutex
	refused bool
	letters []string
}

type delivery struct{ m *mailbox }

func (m *mailbox) NewSession(*smtp.Conn) (smtp.Session, error)   { return delivery{m}, nil }
func (delivery) Mail(string, *smtp.MailOptions) error            { return nil }
func (delivery) Reset()                                          {}
func (delivery) Logout() error                                   { return nil }
func (d delivery) Rcpt(to string, _ *smtp.RcptOptions) (_ error) { return d.m.admit(to) }

func (d delivery) Data(body io.Reader) error {
	raw, err := io.ReadAll(body)
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	d.m.letters = append(d.m.letters, string(raw))
	return err
}

func (m *mailbox) admit(to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.refused || to != "reporter@example.com" {
		m.refused = true
		return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
	}
	return nil
}

func (m *mailbox) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.letters, "\n")
}

func (m *mailbox) listen(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := smtp.NewServer(m)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// office is a pipeline that takes bug reports, and the tools of its staff.
type office struct {
	t       *testing.T
	up      *process
	dir     string
	support string // URL of the service
	chain   *ethclient.Client
	flags   []string // of each command of staff
}

// needsReportClient skips a test that pays where the client that does is not installed.
func needsReportClient(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("../../../serving/clients/node_modules/@x402/fetch"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("serving/clients is not installed: npm ci there")
	}
}

// openOffice starts a pipeline that is paid on a chain.
func openOffice(t *testing.T, rpc string, flags ...string) *office {
	t.Helper()
	needsReportClient(t)
	addr := address(t)
	o := &office{t: t, dir: t.TempDir(), support: "http://" + addr}
	texts := o.file("texts", "text-key-of-tests,-of-thirty-two-bytes")
	o.up = start(t, "up", append([]string{
		"up", "--data-dir=" + o.dir, "--indexer-addr=" + address(t), "--agent-addr=" + address(t), "--valuation-addr=" + address(t),
		"--support-addr=" + addr, "--notify-addr=" + address(t), "--query-addr=" + address(t), "--ops-addr=" + address(t),
		"--chain-addr=" + address(t), "--block-time=50ms", "--support-text-keys-file=" + texts,
	}, flags...)...)
	kafka := o.printed(`a Kafka broker, (\S+)`)
	o.flags = []string{
		"--as=ada", "--as-key-file=" + o.file("ada", staffKeyText), "--support-text-keys-file=" + texts,
		"--kafka=" + kafka, "--payment-rpc=" + rpc, "--payment-confirmations=3",
	}
	var err error
	if o.chain, err = ethclient.Dial(rpc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.chain.Close)
	return o
}

func (o *office) file(name, text string) string {
	o.t.Helper()
	name = filepath.Join(o.dir, name)
	if err := os.WriteFile(name, []byte(text+"\n"), 0o600); err != nil {
		o.t.Fatal(err)
	}
	return name
}

// float is the flag of the account that pays refunds.
func (o *office) float(key *ecdsa.PrivateKey) string {
	return "--float-key-file=" + o.file("float", hexutil.Encode(crypto.FromECDSA(key)))
}

// printed is what the pipeline has printed on a terminal.
func (o *office) printed(pattern string) (text string) {
	o.t.Helper()
	polltest.Until(o.t, pattern+" is printed", func() bool {
		found := regexp.MustCompile(pattern).FindStringSubmatch(o.up.output())
		if found != nil {
			text = found[len(found)-1]
		}
		return found != nil
	})
	return text
}

// ticket is the answer to a report that was paid.
type ticket struct {
	Status int
	Body   struct {
		Ticket           struct{ ID string }
		Token, StatusURL string
	}
}

// send runs a command that sends a report and pays for it.
func (o *office) send(command string) (id, token string) {
	o.t.Helper()
	var paid ticket
	polltest.Within(o.t, 5*time.Minute, func() error {
		cmd := exec.CommandContext(o.t.Context(), "sh", "-c", command)
		cmd.Dir, cmd.Env = repository(o.t), append(os.Environ(), "npm_config_cache="+o.npmCache(), "npm_config_prefer_offline=true")
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil && o.up != nil && o.up.ended() {
			o.t.Fatalf("the pipeline has ended: %v", o.up.err)
		}
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, tail(complaint.String(), 2000))
		}
		return json.Unmarshal(out, &paid)
	})
	if paid.Status != http.StatusCreated {
		o.t.Fatalf("%s: %+v", command, paid)
	}
	return paid.Body.Ticket.ID, paid.Body.Token
}

// npmCache is a cache that has what npm has downloaded, and nothing that it has installed.
func (o *office) npmCache() string {
	o.t.Helper()
	out, err := exec.CommandContext(o.t.Context(), "npm", "config", "get", "cache").Output()
	if err != nil {
		o.t.Fatal(err)
	}
	dir := filepath.Join(o.dir, "npm")
	downloads := filepath.Join(strings.TrimSpace(string(out)), "_cacache")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.MkdirAll(downloads, 0o700)); err != nil {
		o.t.Fatal(err)
	}
	if err := os.Symlink(downloads, filepath.Join(dir, "_cacache")); err != nil && !errors.Is(err, os.ErrExist) {
		o.t.Fatal(err)
	}
	return dir
}

// run is one command of staff, begun: a verb, its flags, and what it takes.
func (o *office) run(args ...string) *process {
	return start(o.t, args[0], slices.Concat([]string{"support", args[0]}, o.flags, args[1:])...)
}

// staff runs a command of staff.
func (o *office) staff(args ...string) (string, error) {
	p := o.run(args...)
	<-p.done
	if p.err != nil {
		return p.output(), fmt.Errorf("support %s: %w: %s", strings.Join(args, " "), p.err, p.output())
	}
	return p.output(), nil
}

func (o *office) must(args ...string) string {
	o.t.Helper()
	out, err := o.staff(args...)
	if err != nil {
		o.t.Fatal(err)
	}
	return out
}

// refused runs a command of staff until it says what is wrong with it.
func (o *office) refused(why string, args ...string) {
	o.t.Helper()
	polltest.Within(o.t, time.Minute, func() error {
		_, err := o.staff(args...)
		if err == nil {
			o.t.Fatalf("%q was done, it was to say %q", args, why)
		}
		if !strings.Contains(err.Error(), why) {
			return err
		}
		return nil
	})
}

// refund is what the reporter is told of his deposit.
func (o *office) refund(id, token string) string {
	o.t.Helper()
	req, err := http.NewRequestWithContext(o.t.Context(), http.MethodGet, o.support+"/tickets/"+id, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("x-service-ticket-token", token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var t struct {
		Deposit struct{ Refund struct{ Status string } }
	}
	if err := json.NewDecoder(res.Body).Decode(&t); err != nil {
		o.t.Fatal(err)
	}
	return t.Deposit.Refund.Status
}

// transfers counts those of the token, by the chain's logs.
func (o *office) transfers(from, to common.Address) int {
	o.t.Helper()
	logs, err := o.chain.FilterLogs(o.t.Context(), ethereum.FilterQuery{
		FromBlock: new(big.Int), Addresses: []common.Address{paychain.Token},
		Topics: [][]common.Hash{{x402.TopicTransfer}, {common.BytesToHash(from[:])}, {common.BytesToHash(to[:])}},
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return len(logs)
}

// give has an account transfer a deposit to another.
func (o *office) give(from *ecdsa.PrivateKey, to common.Address) common.Hash {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Minute)
	defer cancel()
	nonce, err := o.chain.PendingNonceAt(ctx, crypto.PubkeyToAddress(from.PublicKey))
	if err != nil {
		o.t.Fatal(err)
	}
	data := append(contracts.Selector("transfer(address,uint256)"), common.LeftPadBytes(to[:], 32)...)
	token := paychain.Token
	tx, err := types.SignNewTx(from, types.LatestSignerForChainID(big.NewInt(paychain.ChainID)), &types.DynamicFeeTx{
		ChainID: big.NewInt(paychain.ChainID), Nonce: nonce, Gas: 100_000, To: &token,
		GasTipCap: big.NewInt(1e9), GasFeeCap: big.NewInt(100e9), Data: append(data, common.LeftPadBytes(paychain.Dollars(15).Bytes(), 32)...),
	})
	if err == nil {
		err = o.chain.SendTransaction(ctx, tx)
	}
	if err != nil {
		o.t.Fatal(err)
	}
	polltest.Until(o.t, "the transfer is mined", func() bool {
		receipt, err := o.chain.TransactionReceipt(ctx, tx.Hash())
		return err == nil && receipt.Status == types.ReceiptStatusSuccessful
	})
	return tx.Hash()
}

// TestABugReportOfTheFirstMinutes sends one with the command that `up` prints, and has staff answer it and return its
// deposit with theirs: through kills of the command, within the float's ceiling, and by hand.
func TestABugReportOfTheFirstMinutes(t *testing.T) {
	payments := address(t)
	o := openOffice(t, "http://"+payments, "--payment-chain-addr="+payments)
	command := o.printed(`(?m)PAYER_KEY=.*$`)
	if !strings.Contains(command, " npx ") {
		t.Errorf("the command to pay with: %s", command)
	}
	id, token := o.send(command)

	var m mailbox
	letters := []string{"reply", "--smtp=" + m.listen(t), "--smtp-from=support@example.com", "--smtp-plain"}
	reply := []string{"--support-public-url=https://support.example", id, o.file("reply", "Thank you.")}
	o.refused("support-public-url", append(letters, reply[1:]...)...)
	letters = append(letters, reply...)
	o.refused("the reply was saved, but the reporter was not notified", letters...)
	o.must(letters...)
	letter := m.all()
	for _, want := range []string{"To: <reporter@example.com>", "From: <support@example.com>", "Subject: An answer to your report", "https://support.example/t/"} {
		if !strings.Contains(letter, want) {
			t.Errorf("the letter lacks %q: %s", want, letter)
		}
	}
	if strings.Contains(letter, "Thank you") || strings.Contains(letter, token) {
		t.Errorf("the letter tells: %s", letter)
	}
	if shown := o.must("show", id); strings.Count(shown, "Thank you.") != 1 || !strings.Contains(shown, "reporter@example.com") {
		t.Errorf("show: %s", shown)
	}
	o.must("decide", id, "accepted")
	if list := o.must("list"); !strings.Contains(list, id) || !strings.Contains(list, "ACCEPTED") || !strings.Contains(list, "OWED") {
		t.Errorf("list: %s", list)
	}
	float, payer := paychain.Key(1, "float"), paychain.Address(1, "payer")
	fromFloat := []string{"refund", o.float(float), id}
	o.refused("ceiling", append([]string{"refund", "--float-daily-ceiling=14999999"}, fromFloat[1:]...)...)
	o.killed(fromFloat...)
	polltest.Until(t, "the deposit is back", func() bool {
		if refund := o.refund(id, token); refund != "OWED" {
			return refund == "CONFIRMED"
		}
		_, _ = o.staff(fromFloat...)
		return false
	})
	if n := o.transfers(crypto.PubkeyToAddress(float.PublicKey), payer); n != 1 {
		t.Errorf("returned %d times", n)
	}
	o.refused("is CONFIRMED", fromFloat...)
	o.byHand(command, float)
}

// killed runs a command and kills it, at any of its steps, a few times.
func (o *office) killed(args ...string) {
	seed := uint64(time.Now().UnixNano())
	o.t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 5 {
		p := o.run(args...)
		select {
		case <-p.done:
		case <-time.After(time.Duration(rng.IntN(800)) * time.Millisecond):
			p.kill()
		}
	}
}

// byHand returns another deposit by hand, because the float's ceiling is reached.
func (o *office) byHand(command string, float *ecdsa.PrivateKey) {
	o.t.Helper()
	key, err := crypto.GenerateKey()
	if err != nil {
		o.t.Fatal(err)
	}
	other := crypto.PubkeyToAddress(key.PublicKey)
	o.give(paychain.Key(1, "payer"), other)
	id, token := o.send(regexp.MustCompile(`PAYER_KEY=\S+`).ReplaceAllString(command, "PAYER_KEY="+hexutil.Encode(crypto.FromECDSA(key))))
	o.must("decide", id, "rejected-valid")
	o.refused("ceiling", "refund", o.float(float), "--float-daily-ceiling=20000000", id)
	polltest.Until(o.t, "it is taken on", func() bool { _, err := o.staff("refund", id, "by-hand"); return err == nil })
	o.must("refund", id, "not-sent")
	o.must("refund", id, "by-hand")
	o.refused("is SENT", "refund", o.float(float), id)
	o.refused("neither by-hand nor not-sent nor a transaction", "refund", id, "0x12")
	o.refused("after the ticket", "refund", "--tx=0x12", id, "by-hand")
	o.refused("tx: ", "refund", "--tx=0x12", id)
	sent := o.give(paychain.Key(1, "payer"), other)
	polltest.Until(o.t, "it has its confirmations", func() bool { _, err := o.staff("refund", id, sent.Hex()); return err == nil })
	if refund := o.refund(id, token); refund != "CONFIRMED" {
		o.t.Errorf("the refund is %s", refund)
	}
	if n := o.transfers(crypto.PubkeyToAddress(float.PublicKey), other); n != 0 {
		o.t.Errorf("the float has sent it %d times too", n)
	}
}
