package k8s

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/lienstream/lienstream/processors/notifier/sender"
)

// atRest are the series of a system that works, a sample a minute, as promtool's tests spell them.
var atRest = []string{
	`lienstream_ingest_commit_age_seconds{instance="active"} 0 3 1x118`,
	`lienstream_ingest_commit_age_seconds{instance="standby"} 0+60x120`,
	`lienstream_ingest_head_age_seconds{instance="active"} 1x120`,
	`lienstream_ingest_head_age_seconds{instance="standby"} 0+60x120`,
	`lienstream_ingest_stuck_block 0x60 700 0x59`,
	`lienstream_ingest_disputed 0x30 1x5 0x85`,
	`lienstream_processors_stopped{application="market",partition="0"} 0x120`,
	`lienstream_processors_lag_blocks{application="market",partition="0",instance="a"} 3x120`,
	`lienstream_processors_block_number{application="market",partition="0",instance="a"} 7+5x120`,
	`lienstream_processors_block_number{application="market",partition="1",instance="a"} 7+5x30 _x90`, // moves
	`lienstream_processors_block_number{application="market",partition="1",instance="b"} _x32 170+5x88`,
	`lienstream_processors_lag_blocks{application="market",partition="0",instance="b"} 0+90x60 4x60`, // restores
	`lienstream_support_oldest_unpaid_seconds 0 4 2 9 0x116`,
	`lienstream_support_oldest_refund_seconds 0 30 60 0x117`,
	`lienstream_support_float_units{account="0xf"} 150000000x120`,
	`lienstream_support_relayer_gas_ether{account="0xa"} 0.05x120`,
	`lienstream_support_settle_errors_total{kind="chain"} 3x120`,
	`lienstream_support_settle_errors_total{kind="decided"} 0+1x120`,
	`lienstream_support_payment_chain_head 1000+30x120`,
	`lienstream_support_payment_chain_read_timestamp_seconds{instance="a"} 0+60x120`,
	`lienstream_support_payment_chain_read_timestamp_seconds{instance="b"} 0+60x120`,
	`lienstream_support_desk_read_timestamp_seconds{instance="a"} 0+60x120`,
	`lienstream_support_desk_read_timestamp_seconds{instance="b"} 0+60x120`,
	`lienstream_support_chain_errors_total 0+1x120`,
	`lienstream_chain_contradicted_total{endpoint="rpc.example"} 0x120`,
	`lienstream_chain_alone 0x20 1x5 0x95`, // a node was away for a moment
	`lienstream_sender_oldest_due_seconds 0 12 3 0x117`,
	`lienstream_sender_clock_behind_seconds{confirmation="latest",partition="0"} 0 6 2 90 4x116`,
	`lienstream_sender_clock_behind_seconds{confirmation="safe",partition="0"} 420+60x12 420+60x12 420x94`,
	`lienstream_sender_clock_behind_seconds{confirmation="finalized",partition="0"} 1200x60 1200+60x15 1200x45`, // a chain that takes its time
	`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="sent"} 0+20x120`,
	`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="retry"} 0+1x120`,
	`lienstream_sender_attempts_total{channel="email",class="news",server="known",result="dead"} 0+1x120`, // by receivers of a stranger's own
	`lienstream_sender_attempts_total{channel="email",class="news",server="known",result="sent"} 0+1x120`,
	`lienstream_sender_attempts_total{channel="email",class="news",server="known",result="retry"} 0+200x120`, // of a domain that a stranger makes up
	`lienstream_sender_attempts_total{channel="telegram",class="news",server="known",result="sent"} 0+1x120`,
	`lienstream_sender_attempts_total{channel="telegram",class="news",server="known",result="retry"} 0+200x120`,
	`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="tired"} 0x30 1x90`,
	`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="unsent"} 0x120`,
	`lienstream_sender_attempts_total{channel="email",class="request",server="known",result="sent"} 0+1x120`,
	`lienstream_sender_attempts_total{channel="email",class="request",server="known",result="retry"} 0+90x120`, // to addresses that a stranger makes up
	`lienstream_sender_attempts_total{channel="telegram",class="deal",server="known",result="sent"} 0x120`,
	`lienstream_sender_attempts_total{channel="telegram",class="deal",server="known",result="retry"} 0x120`,
	`lienstream_sender_attempts_total{channel="telegram",class="deal",server="known",result="paused"} 0x120`,
	`lienstream_sender_attempts_total{channel="telegram",class="news",server="known",result="gone"} 0x30 1x90`, // the only chat has left
	`lienstream_sender_attempts_total{channel="push",class="deal",server="known",result="sent"} 0+1x120`,
	`lienstream_sender_attempts_total{channel="push",class="deal",server="known",result="retry"} 0x120`,
	`lienstream_sender_attempts_total{channel="push",class="news",server="other",result="tired"} 0+1x120`,
	`lienstream_sender_attempts_total{channel="push",class="news",server="other",result="sent"} 0+1x120`,
	`lienstream_sender_attempts_total{channel="push",class="news",server="other",result="retry"} 0+500x120`, // by endpoints of a stranger's own
	`lienstream_sender_attempts_total{channel="push",class="news",server="other",result="dead"} 0+500x120`,
	`lienstream_sender_unreported_total 0x120`,
	`lienstream_notifier_unread_commands_total 0x120`,
	`lienstream_notifier_sealed_addresses{key="1",use="missing",partition="0"} 0x120`,
}

// wrong is what each alert is for: the series that take the place of those at rest, of which no other comes.
var wrong = map[string][]string{
	"IngestStands":      {`lienstream_ingest_commit_age_seconds{instance="active"} 0x30 0+60x90`},
	"IngestStuck":       {`lienstream_ingest_stuck_block 0x60 700x60`},
	"IngestDisputed":    {`lienstream_ingest_disputed 0x30 1x90`},
	"ProcessorsStopped": {`lienstream_processors_stopped{application="market",partition="0"} 0x30 1x90`},
	"ProcessorsBehind":  {`lienstream_processors_lag_blocks{application="market",partition="0",instance="a"} 3x30 3+60x90`, `lienstream_processors_lag_blocks{application="market",partition="0",instance="b"} 0+90x120`},
	"ProcessorsAway":    {`lienstream_processors_block_number{application="market",partition="0",instance="a"} 7+5x30`},
	"NotifierAway": {
		`lienstream_sender_clock_behind_seconds{confirmation="latest",partition="0"} 4x30`, `lienstream_sender_clock_behind_seconds{confirmation="safe",partition="0"} 420x30`,
		`lienstream_sender_clock_behind_seconds{confirmation="finalized",partition="0"} 1200x30`,
	},
	"PaymentUndecided":   {`lienstream_support_oldest_unpaid_seconds 0+60x120`},
	"RefundUnconfirmed":  {`lienstream_support_oldest_refund_seconds 0+60x120`},
	"FloatLow":           {`lienstream_support_float_units{account="0xf"} 150000000x30 30000000x90`},
	"RelayerGasLow":      {`lienstream_support_relayer_gas_ether{account="0xa"} 0.05x30 0.004x90`},
	"PaymentsNotSettled": {`lienstream_support_settle_errors_total{kind="no_gas"} 0+2x120`},
	"PaymentChainStands": {`lienstream_support_payment_chain_head 1000+30x30 1900x90`},
	"PaymentChainAway": { // one node hangs: the other sees the chain's head move
		`lienstream_support_payment_chain_read_timestamp_seconds{instance="a"} 0+60x30 1800x90`,
	},
	"PaymentChainErrors": {`lienstream_support_chain_errors_total 0+15x120`},
	"SupportDeskAway": {
		`lienstream_support_desk_read_timestamp_seconds{instance="b"} 0x120`, // it never was read
	},
	"ChainNodeContradicted": {`lienstream_chain_contradicted_total{endpoint="rpc.example"} 0x30 1x90`},
	"ChainNodeAlone":        {`lienstream_chain_alone 0x30 1x90`},
	"NotifierLate":          {`lienstream_sender_oldest_due_seconds{channel="push",partition="1"} 0+60x120`},
	"NotifierClockStands":   {`lienstream_sender_clock_behind_seconds{confirmation="finalized",partition="0"} 1200x60 1260+60x30 3060x30`},
	"NotifierRetries": { // a wrong password from the start
		`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="sent"} 0x120`,
		`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="retry"} 0+5x120`,
		`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="tired"} 0x120`,
		`lienstream_sender_attempts_total{channel="email",class="news",server="known",result="dead"} 0x120`,
	},
	"NotifierNewsRetries": { // nobody has a deal to be told of
		`lienstream_sender_attempts_total{channel="telegram",class="news",server="known",result="sent"} 7x120`,
	},
	"NotifierPushRetries": { // but endpoints of a stranger's own take all
		`lienstream_sender_attempts_total{channel="push",class="deal",server="known",result="sent"} 7x120`,
		`lienstream_sender_attempts_total{channel="push",class="deal",server="known",result="retry"} 0+5x120`,
	},
	"NotifierDeadLetters": { // every chat refuses, for a fault of ours
		`lienstream_sender_attempts_total{channel="telegram",class="deal",server="known",result="dead"} 0x30 0+50x90`,
		`lienstream_sender_attempts_total{channel="telegram",class="news",server="known",result="sent"} 0x120`,
		`lienstream_sender_attempts_total{channel="telegram",class="news",server="known",result="retry"} 0x120`,
	},
	"NotifierUnreported": {`lienstream_sender_unreported_total 0x30 1x90`},
	"NotifierKeyMissing": {`lienstream_notifier_sealed_addresses{key="1",use="missing",partition="0"} 0x30 5x90`},
	"NotifierUnread":     {`lienstream_notifier_unread_commands_total 0x30 1x90`},
}

// alsoWrong are further cases of an alert, a series each.
var alsoWrong = map[string][]string{
	"IngestStands":   {`lienstream_ingest_head_age_seconds{instance="active"} 1x30 1+60x90`},
	"ProcessorsAway": {`lienstream_processors_block_number{application="support",partition="3",instance="a"} 7x30`},
	"NotifierAway":   {`lienstream_sender_clock_behind_seconds{confirmation="safe",partition="1"} 420x30`},
	"NotifierClockStands": { // in time for who is told an hour before the expiry
		`lienstream_sender_clock_behind_seconds{confirmation="latest",partition="0"} 4x90 4+60x10 4x20`,
		`lienstream_sender_clock_behind_seconds{confirmation="safe",partition="0"} 600x80 600+60x25 600x14`,
		`lienstream_sender_clock_behind_seconds{partition="0"} 1200x60 1260+60x30 3060x30`, // of a former build
	},
	"NotifierRetries":     {`lienstream_sender_attempts_total{channel="telegram",class="deal",server="known",result="paused"} 0x30 0+5x90`}, // of the bot, for hours
	"NotifierDeadLetters": {`lienstream_sender_attempts_total{channel="email",class="deal",server="known",result="unsent"} 0x30 1x90`},
}

// TestAlertsFire evaluates every rule as Prometheus does: each fires when its case comes, and none does at rest.
func TestAlertsFire(t *testing.T) {
	rules := alertRules(t)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	t.Cleanup(func() { _ = engine.Close() })
	if fired := fires(t, engine, rules, atRest); len(fired) > 0 {
		t.Errorf("at rest %v fire", fired)
	}
	for _, r := range rules {
		if _, has := wrong[r.Alert]; !has {
			t.Errorf("%s: nothing says when it fires", r.Alert)
		}
	}
	for alert, series := range wrong {
		want := []string{alert}
		if fired := fires(t, engine, rules, instead(t, atRest, series)); !slices.Equal(fired, want) {
			t.Errorf("%s: %v fire, want %v", alert, fired, want)
		}
		for _, also := range alsoWrong[alert] {
			if fired := fires(t, engine, rules, instead(t, atRest, []string{also})); !slices.Equal(fired, want) {
				t.Errorf("%s: of %s %v fire, want %v", alert, also, fired, want)
			}
		}
	}
}

// TestAttemptsBegin: what the rules ask of attempts is there before the first, or nobody sees a channel that never sent any.
func TestAttemptsBegin(t *testing.T) {
	reg := prometheus.NewRegistry()
	sends := sender.DefaultConfig()
	sends.Catalogue.Partitions = 1
	if _, err := sender.New(sends, nil, nil, nil, nil, zap.NewNop(), reg); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	const name = "lienstream_sender_attempts_total"
	var all []labels.Labels
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			of := labels.NewBuilder(labels.FromStrings(labels.MetricName, name))
			for _, l := range m.GetLabel() {
				of.Set(l.GetName(), l.GetValue())
			}
			all = append(all, of.Labels())
		}
	}
	asked := 0
	for _, r := range alertRules(t) {
		expr, err := parser.ParseExpr(r.Expr)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		for _, matchers := range parser.ExtractSelectors(expr) {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == labels.MetricName && m.Value == name }) {
				continue
			}
			asked++
			if !slices.ContainsFunc(all, func(of labels.Labels) bool {
				return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(of.Get(m.Name)) })
			}) {
				t.Errorf("%s: nothing at the start has %v", r.Alert, matchers)
			}
		}
	}
	if asked < 8 {
		t.Errorf("%d selectors of attempts", asked)
	}
}

type alertRule struct{ Alert, Expr, For string }

func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	for name, text := range objects(t)["ConfigMap/lienstream-alerts"].(*corev1.ConfigMap).Data {
		var file struct{ Groups []struct{ Rules []alertRule } }
		if err := yaml.Unmarshal([]byte(text), &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, g := range file.Groups {
			rules = append(rules, g.Rules...)
		}
	}
	return rules
}

// instead are the series with others in place of those of the same name and labels.
func instead(t *testing.T, series, others []string) []string {
	t.Helper()
	all := map[string]string{}
	for _, line := range slices.Concat(series, others) {
		of, _, err := parser.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all[of.String()] = line
	}
	return slices.Collect(maps.Values(all))
}

// fires are the alerts that fire within two hours: whose expression holds of the same labels for as long as they ask.
func fires(t *testing.T, engine *promql.Engine, rules []alertRule, series []string) (alerts []string) {
	t.Helper()
	db := load(t, series)
	for _, r := range rules {
		wait := time.Duration(0)
		if r.For != "" {
			var err error
			if wait, err = time.ParseDuration(r.For); err != nil {
				t.Fatalf("%s: for: %v", r.Alert, err)
			}
		}
		if firesOne(t, engine, db, r.Expr, wait) {
			alerts = append(alerts, r.Alert)
		}
	}
	slices.Sort(alerts)
	return alerts
}

const minutes = 120

func firesOne(t *testing.T, engine *promql.Engine, db storage.Queryable, expr string, wait time.Duration) bool {
	t.Helper()
	since := map[string]time.Time{}
	for minute := range minutes {
		at := time.Unix(int64(60*minute), 0)
		query, err := engine.NewInstantQuery(t.Context(), db, nil, expr, at)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		held := map[string]time.Time{}
		result := query.Exec(t.Context())
		vector, err := result.Vector()
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		for _, sample := range vector {
			of := sample.Metric.String()
			held[of] = at
			if began, pending := since[of]; pending {
				held[of] = began
			}
			if at.Sub(held[of]) >= wait {
				query.Close()
				return true
			}
		}
		query.Close()
		since = held
	}
	return false
}

// load is a database of series, a sample a minute from the epoch on.
func load(t *testing.T, series []string) storage.Queryable {
	t.Helper()
	var all []storage.Series
	for _, line := range series {
		of, values, err := parser.ParseSeriesDesc(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			samples = append(samples, sample{at: int64(60_000 * i), value: v.Value})
		}
		all = append(all, storage.NewListSeries(of, samples))
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := slices.DeleteFunc(slices.Clone(all), func(s storage.Series) bool {
			return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) })
		})
		return &seriesSet{left: found}
	}}}
}

// seriesSet is a storage.SeriesSet of a list.
type seriesSet struct {
	at   storage.Series
	left []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.left) == 0 {
		return false
	}
	s.at, s.left = s.left[0], s.left[1:]
	return true
}

func (s *seriesSet) At() storage.Series { return s.at }

func (*seriesSet) Err() error { return nil }

func (*seriesSet) Warnings() annotations.Annotations { return nil }

// sample is a chunks.Sample of a number.
type sample struct {
	at    int64 // milliseconds
	value float64
}

func (s sample) T() int64 { return s.at }

func (s sample) F() float64 { return s.value }

func (sample) H() *histogram.Histogram { return nil }

func (sample) FH() *histogram.FloatHistogram { return nil }

func (sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

func (s sample) Copy() chunks.Sample { return s }
