package roles

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
)

// upRole runs every role in one process, with an embedded server for each that no flag names.
type upRole struct {
	chain      *chainRole
	ingest     *ingestRole
	processors *processorsRole
	serving    *servingRole
}

func (*upRole) Name() string { return "up" }

func (*upRole) Help() string {
	return "run every role in one process, with an embedded chain, Kafka and Redis unless flags name others"
}

func (*upRole) Flags(*Flags) {} // it has the flags of the others

// Memory: a backfill beside an embedded broker allocates gigabytes, so it is not bounded. The embedded chain sets the
// pace itself.
func (r *upRole) Memory(p *Process) uint64 {
	switch {
	case len(p.Servers.Brokers) > 0:
		return r.processors.Memory(p) + upHeap
	case p.memory > 0:
		return p.memory.Beyond(besideHeap + upHeap)
	case len(p.Servers.RPC) == 0:
		return 400 << 20
	}
	return 0
}

// upHeap is for the roles beside the processors, and for what they share.
const upHeap = 110 << 20

func (*upRole) Least(*Process) memory.Budget { return engine.LeastMemory + upHeap }

// From what the values follow that flags have in `up` alone.
const (
	inUp             = "`up` starts it"
	embeddedClock    = "the embedded chain's clock runs ahead"
	embeddedPayments = "the embedded payment chain"
)

func (r *upRole) Defaults(p *Process) {
	p.up = true
	if addr := r.processors.http.Listen; strings.HasPrefix(addr, ":") && p.queryTokenFile == "" {
		p.flags.fill("query-addr", "127.0.0.1"+addr, "only this process reads there, without --query-token-file")
	}
	r.processors.Defaults(p)
	r.serving.Defaults(p)
	for flag, named := range map[string]bool{"rpc": len(p.endpoints) > 0, "kafka": len(p.Servers.Brokers) > 0, "redis": p.Servers.Redis != ""} {
		if !named {
			p.flags.show(flag, "embedded", inUp)
		}
	}
	if !p.EmbeddedChain() {
		return
	}
	p.flags.fill("deployment", filepath.Join(p.DataDir, "deployment.json"), "the embedded chain writes it")
	p.flags.fill("app-url", p.Beside(indexerName), "the service in this process")
	p.flags.fill("notify-public-url", p.Beside(notifierName), "the service in this process")
	if p.notify.smtp == "" {
		p.flags.show("smtp", "embedded", "`up` keeps the emails of an embedded chain")
		p.flags.fill("smtp-from", "alerts@lienstream.localhost", inUp)
		p.flags.fill("smtp-plain", "true", inUp)
	}
	if len(p.Servers.Brokers) > 0 {
		p.flags.show("kafka-prefix", p.Servers.Prefix+"-<time of the start>", "the embedded chain is new at each start")
	}
}

// checkEmbedded refuses flags that no embedded server can obey.
func (r *upRole) checkEmbedded(p *Process) error {
	var errs []error
	if len(p.Servers.Brokers) == 0 {
		errs = p.flags.refuse("the embedded broker serves this process alone; use it with --kafka",
			"kafka-tls", "kafka-tls-ca", "kafka-tls-cert", "kafka-tls-key", "kafka-sasl", "kafka-user", "kafka-password-file")
	}
	if !p.EmbeddedChain() {
		return errors.Join(errs...)
	}
	errs = append(errs, p.flags.refuse("the embedded chain writes its own; use it with --rpc", "deployment")...)
	if p.notify.smtp == "" {
		errs = append(errs, p.flags.refuse("the emails of an embedded chain are not sent; use it with --smtp", "smtp-user", "smtp-password-file")...)
		if !p.notify.smtpPlain {
			errs = append(errs, errors.New("smtp-plain: the emails of an embedded chain are not sent; use it with --smtp"))
		}
	}
	return errors.Join(errs...)
}

func (r *upRole) Check(p *Process) error {
	if p.CursorSecretFile == "" {
		p.cursorSecret = rand.Text() // there is no other node
	}
	_, staff := p.supportStaff()
	errs := []error{p.checkServers(false), r.checkEmbedded(p), r.serving.check(p), p.notify.check(p), r.processors.http.Validate(), r.processors.checkApplications(), r.processors.checkToken(p), staff}
	ingest, market := r.ingest.config(p), r.processors.config(p, topics.AppMarket)
	if len(p.Servers.Brokers) == 0 {
		ingest.Kafka.Brokers = []string{"embedded:9092"} // they are known once it has started
		market.Kafka.Brokers = ingest.Kafka.Brokers
	}
	errs = append(errs, market.Validate())
	var err error
	if ingest.Deployment, err = p.checkedDeployment(); len(p.Servers.RPC) == 0 {
		err = r.chain.Check(p) // which writes its deployment
		ingest.RPC.Endpoints = []rpc.Endpoint{{URL: "http://embedded"}}
	}
	return errors.Join(append(errs, err, ingest.Validate())...)
}

func (r *upRole) Start(ctx context.Context, p *Process) error {
	began := time.Now()
	p.Closing(func() error { fmt.Fprintln(p.Stdout, "stopping"); return nil })
	e, err := embed(ctx, p, r.chain)
	if err != nil {
		return err
	}
	p.Servers = e.servers
	if err := p.registerSchemas(ctx); err != nil {
		return err
	}
	if err := kafka.ApplyCatalogue(ctx, p.Kafka(), p.Catalogue(), io.Discard); err != nil {
		return err
	}
	if err := r.ingest.start(ctx, p); err != nil {
		return err
	}
	if err := r.processors.start(ctx, p); err != nil {
		return err
	}
	if err := r.serving.Start(ctx, p); err != nil {
		return err
	}
	r.banner(p, e)
	p.Group.Go(func() error { return r.progress(ctx, p, began) })
	return nil
}

// banner prints the addresses of everything.
func (r *upRole) banner(p *Process, e embedded) {
	fmt.Fprintf(p.Stdout, "\nLienstream %s\n", e.history)
	for _, name := range e.names {
		fmt.Fprintln(p.Stdout, "  embedded:", name)
	}
	fmt.Fprintf(p.Stdout, "  metrics:  %s/metrics\n", local(p.ops))
	if p.sink != nil {
		fmt.Fprintf(p.Stdout, "  outbox:   %s/outbox\n", local(p.ops))
	}
	fmt.Fprintln(p.Stdout)
	for _, s := range r.serving.services {
		if x, ok := s.(interface{ Banner() []string }); ok {
			for _, line := range x.Banner() {
				fmt.Fprintln(p.Stdout, " ", line)
			}
		}
	}
	fmt.Fprintln(p.Stdout)
}

// progress shows the backfill until everything is ready: a progress bar on a terminal, else lines.
func (r *upRole) progress(ctx context.Context, p *Process, began time.Time) error {
	bar := progressbar.DefaultSilent(1000)
	if terminal(p.Stdout) {
		bar = progressbar.NewOptions(1000, progressbar.OptionSetWriter(p.Stdout), progressbar.OptionSetDescription("backfill"),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetWidth(40))
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for said := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		status := r.ingest.ingester.Status()
		if p.allReady(ctx) {
			_ = bar.Finish() // the terminal may be gone
			fmt.Fprintf(p.Stdout, "ready after %s, as of block %d\n", time.Since(began).Round(10*time.Millisecond), status.Published.Number)
			return nil
		}
		_ = bar.Set(int(status.Progress() * 999))
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			p.Log.Info("backfill", zap.Uint64("block", status.Verified), zap.Uint64("head", status.Head), zap.Uint64("records", status.Records))
		}
	}
}

func (p *Process) allReady(ctx context.Context) bool {
	for _, check := range p.checks {
		if check.Run(ctx) != nil {
			return false
		}
	}
	return true
}
