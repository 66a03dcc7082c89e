package k8s

import (
	"regexp"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/resealer"
	"github.com/lienstream/lienstream/processors/notifier/sender"
	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/support"
	"github.com/lienstream/lienstream/topics"
)

// metrics are the names of what the parts with alerts register.
func metrics(t *testing.T) map[string]bool {
	t.Helper()
	reg := prometheus.NewRegistry()
	app := notifier.New(1, reg)
	sends := sender.DefaultConfig()
	sends.Catalogue.Partitions = 1
	if _, err := sender.New(sends, nil, nil, nil, nil, zap.NewNop(), reg); err != nil {
		t.Fatal(err)
	}
	from := ingest.DefaultConfig()
	from.Kafka.Brokers, from.RPC.Endpoints = []string{"kafka.example:9092"}, []rpc.Endpoint{{URL: "https://rpc.example", Name: "rpc"}}
	from.Deployment = contracts.Deployment{
		ChainID: 1, DealVault: common.Address{1}, AssetRegistry: common.Address{2}, USDG: common.Address{3},
		PoolManager: common.Address{4}, PositionManager: common.Address{5}, StateView: common.Address{6}, V4Quoter: common.Address{7},
	}
	if _, err := ingest.New(from, zap.NewNop(), reg); err != nil {
		t.Fatal(err)
	}
	of := engine.DefaultConfig()
	of.Kafka, of.Catalogue = from.Kafka, topics.Catalogue{Prefix: "p", ChainID: 1, Partitions: 1}
	of.AppName, of.Instance, of.Dir, of.FS, of.Registerer = topics.AppNotifier, "a", "/a", vfs.NewMem(), reg
	if _, err := engine.NewCommands(of, app); err != nil {
		t.Fatal(err)
	}
	resealer.New(sends.Catalogue, nil, nil, nil, zap.NewNop(), reg)
	reports := support.DefaultConfig()
	reports.HTTP.CursorSecret, reports.PublicURL = strings.Repeat("cursor", 6), "https://support.example"
	reports.Payment.PayTo = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C"
	reports.Keys = support.Keys{Token: []support.TokenKey{{Secret: strings.Repeat("token", 8)}}, Text: []string{strings.Repeat("text", 8)}}
	if _, err := support.New(reports, support.Deps{}, zap.NewNop(), reg); err != nil {
		t.Fatal(err)
	}
	nodes := chain.DefaultConfig()
	nodes.ChainID, nodes.Endpoints = 1, []string{"https://rpc.example"}
	if _, err := chain.New(nodes, nil, zap.NewNop(), reg); err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 1000)
	reg.Describe(described)
	close(described)
	names, name := map[string]bool{}, regexp.MustCompile(`fqName: "([a-z_]+)"`)
	for d := range described {
		names[name.FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

// TestAlertRules: each rule asks for metrics that the program registers, and docs/operations.md says what to do.
func TestAlertRules(t *testing.T) {
	registered, guide, named := metrics(t), read(t, "../docs/operations.md"), regexp.MustCompile(`lienstream_[a-z_]+`)
	rules := 0
	for name, text := range objects(t)["ConfigMap/lienstream-alerts"].(*corev1.ConfigMap).Data {
		var file struct {
			Groups []struct {
				Name  string
				Rules []struct {
					Alert, Expr, For    string
					Labels, Annotations map[string]string
				}
			}
		}
		strict := yaml.NewDecoder(strings.NewReader(text))
		strict.KnownFields(true)
		if err := strict.Decode(&file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, g := range file.Groups {
			rules += len(g.Rules)
			for _, r := range g.Rules {
				asked := named.FindAllString(r.Expr, -1)
				if r.Alert == "" || len(asked) == 0 || r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
					t.Errorf("%s: rule %+v says too little", name, r)
				}
				told := strings.Contains(guide, "`"+r.Alert+"`")
				for _, metric := range asked {
					if !registered[metric] {
						t.Errorf("%s: there is no metric %s", r.Alert, metric)
					}
					told = told || strings.Contains(guide, "`"+metric)
				}
				if !told {
					t.Errorf("docs/operations.md has neither %s nor its metrics %v", r.Alert, asked)
				}
			}
		}
	}
	if rules < 24 {
		t.Errorf("%d rules", rules)
	}
}
