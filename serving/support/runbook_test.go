package support

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	desk "github.com/lienstream/lienstream/processors/support"
	"github.com/lienstream/lienstream/serving/x402"
)

// The runbook has an entry for every state that a payment or a refund may be stuck in and for every way in which settling
// fails, and it and the alerts name metrics that there are.
func TestTheRunbook(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	check(t, err)
	_, book, _ := strings.Cut(string(text), "## Bug reports and their deposits")
	book, _, _ = strings.Cut(book, "\n## ")
	var entries []string
	for line := range strings.Lines(book) {
		if strings.HasPrefix(line, "| ") {
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
	for _, err := range []error{errAsset, errNotCharged, errCeiling, errSealed, x402.ErrWrongToken} {
		entry(strings.TrimPrefix(strings.TrimPrefix(strings.Split(err.Error(), " than ")[0], "sealed text: "), "the float's "))
	}

	reg := prometheus.NewRegistry()
	m := newMetrics(reg)
	m.reports.WithLabelValues("x")
	m.payments.WithLabelValues("x")
	m.settleErrors.WithLabelValues("x")
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
