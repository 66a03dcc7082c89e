package support

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
	"github.com/lienstream/lienstream/topics/polltest"
)

// The runbook has an entry for every state that a payment or a refund may be stuck in and for every way in which
// settling fails, and it and the alerts name metrics that there are.
func TestTheRunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	check(t, err)
	_, book, _ := strings.Cut(string(text), "## Bug reports and their deposits")
	book, _, _ = strings.Cut(book, "\n## ")
	var entries []string
	for line := range strings.Lines(book) {
		if strings.HasPrefix(line, "| ") && strings.Count(line, " | ") == 2 { // what you see, what it means, what to do
			entries = append(entries, line)
		}
	}
	entry := func(what string) {
		t.Helper()
		if !slices.ContainsFunc(entries, func(line string) bool { return strings.Contains(line, what) }) {
			t.Errorf("no entry has %s", what)
		}
	}
	for _, err := range []error{x402.ErrNoGas, x402.ErrFeeCeiling, x402.ErrFacilitator, x402.ErrBusy, x402.ErrDecided, desk.ErrUnavailable, errors.New("node")} {
		entry(`kind="` + settleError(err) + `"`)
	}
	for _, status := range []desk.Status{desk.StatusReserved, desk.StatusSent, desk.StatusPaid, desk.StatusFinal, desk.StatusReleased, desk.StatusVoid} {
		entry("`" + string(status) + "`")
	}
	for _, status := range []desk.RefundStatus{desk.RefundStatusOwed, desk.RefundStatusFailed} {
		entry("`" + string(status) + "`")
	}
	for _, err := range []error{errAsset, errNotCharged, errUsed, errCeiling, errDay, errChanged, errSealed, x402.ErrWrongToken} {
		entry(strings.TrimPrefix(strings.TrimPrefix(strings.Split(err.Error(), " than ")[0], "sealed text: "), "the float's "))
	}

	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	m.reports.WithLabelValues("x")
	m.payments.WithLabelValues("x")
	m.settleErrors.WithLabelValues("x")
	m.float.WithLabelValues("x")
	m.gas.WithLabelValues("x")
	families, err := reg.Gather()
	check(t, err)
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	alerts, err := os.ReadFile("../../k8s/alerts.yaml")
	check(t, err)
	for _, name := range regexp.MustCompile(`lienstream_support_[a-z_]+`).FindAllString(book+string(alerts), -1) {
		if !known[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
}

// The balances that alerts ask for are those of accounts that there are: an empty float is seen, and none is where a
// facilitator pays for the gas.
func TestBalancesAreWatched(t *testing.T) {
	w := newWorld(t)
	w.start(w.deps(w.relayer("relayer")))
	for _, name := range []string{"lienstream_support_float_units{", "lienstream_support_relayer_gas_ether{"} {
		if bytes.Contains(w.metrics.Gathered(w.t), []byte(name)) {
			t.Errorf("no such account, and there is %s", name)
		}
	}
	deps := w.deps(w.relayer("no gas"))
	deps.Float, deps.Relayer = w.chain.Address("another"), w.chain.Address("no gas")
	w.start(deps)
	for name, account := range map[string]common.Address{"float_units": deps.Float, "relayer_gas_ether": deps.Relayer} {
		line := fmt.Sprintf("lienstream_support_%s{account=%q} 0\n", name, account.Hex())
		polltest.Until(t, line, func() bool { return bytes.Contains(w.metrics.Gathered(w.t), []byte(line)) })
	}
}

// gauge is the highest value of a gauge of all processes.
func (w *world) gauge(name string) (highest float64) {
	w.t.Helper()
	for line := range strings.Lines(string(w.metrics.Gathered(w.t))) {
		if text, ok := strings.CutPrefix(line, "lienstream_support_"+name+" "); ok {
			var value float64
			_, err := fmt.Sscan(text, &value)
			check(w.t, err)
			highest = max(highest, value)
		}
	}
	return highest
}

// away is a payment chain that cannot be read.
type away struct{ Chain }

var errAway = errors.New("away")

func (away) ChainID(context.Context) (*big.Int, error) { return nil, errAway }

func (away) HeaderByNumber(context.Context, *big.Int) (*types.Header, error) { return nil, errAway }

// A node that starts while the payment chain is away still says how old the oldest payment is, and when it last read
// either of those that it needs.
func TestTheOldestPaymentIsSeenWhileTheChainIsAway(t *testing.T) {
	w := newWorld(t)
	w.reserved(w.pay(w.chain.Key("payer"), "old"), body("Old"))
	deps := w.deps(w.relayer("relayer"))
	deps.Chain = away{w.chain.Client()}
	deps.Now = func() time.Time { return time.Now().Add(time.Hour) }
	s, err := New(w.cfg, deps, zap.NewNop(), w.metrics.New())
	check(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); check(t, <-done) }()
	polltest.Until(t, "the age is seen", func() bool { return w.gauge("oldest_unpaid_seconds") > 300 })
	polltest.Until(t, "the desk was read", func() bool { return w.gauge("desk_read_timestamp_seconds") > 0 })
	if at := w.gauge("payment_chain_read_timestamp_seconds"); at != 0 {
		t.Errorf("the payment chain was read at %v", at)
	}
}

// While the desk is unreachable the age of the oldest payment is unknown, not 0, and the time of the last read does not
// change.
func TestTheOldestPaymentIsSeenWhileTheDeskIsAway(t *testing.T) {
	w := newWorld(t)
	deps := w.deps(w.relayer("relayer"))
	var ahead atomic.Int64 // seconds
	deps.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load()) * time.Second) }
	w.cfg.Wait = 50 * time.Millisecond
	s := w.start(deps)
	s.post(w.header(w.pay(w.chain.Key("payer"), "old")), body("Old")) // no block is mined
	ahead.Store(3600)
	polltest.Until(t, "the age is seen", func() bool { return w.gauge("oldest_unpaid_seconds") > 300 })
	w.closeDesk()
	if err := s.sweep(t.Context()); err == nil {
		t.Fatal("read from a desk that is away")
	}
	at := w.gauge("desk_read_timestamp_seconds")
	ahead.Store(7200)
	if err := s.sweep(t.Context()); err == nil || w.gauge("oldest_unpaid_seconds") <= 300 || w.gauge("desk_read_timestamp_seconds") != at {
		t.Errorf("%v; the oldest is of %v s, and the desk was read at %v, not %v", err,
			w.gauge("oldest_unpaid_seconds"), w.gauge("desk_read_timestamp_seconds"), at)
	}
}
