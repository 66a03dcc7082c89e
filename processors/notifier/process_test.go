package notifier_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	"github.com/lienstream/lienstream/processors/notifier/facts"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/freeport"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// deployed are the contracts of the program that BenchmarkProcess runs: those of the tests, and what a file must name besides.
func deployed() contracts.Deployment {
	d := atTests
	for i, at := range []*common.Address{
		&d.AssetRegistry, &d.USDG, &d.PoolManager, &d.PositionManager, &d.StateView, &d.V4Quoter,
		&d.RewardDistributor, &d.LiquidityStaking, &d.Burner, &d.TKN, &d.STKN,
	} {
		*at = common.Address{1, byte(i)}
	}
	d.PoolID = common.Hash{1}
	return d
}

// city is a town with very many subscribers and the program as users run it.
type city struct {
	*town
	b           *testing.B
	binary, dir string
	flags       []string
	ops         string
	running     *exec.Cmd
	ended       chan struct{}
	fired       atomic.Int64 // alerts in their topic

	client *notifier.Client // of the program that runs
	last   []common.Address // of each partition, a wallet
}

func newCity(b *testing.B) *city {
	cat := topics.Catalogue{ChainID: atTests.ChainID, Partitions: topics.DefaultPartitions}
	c := &city{town: newTownOn(newTopicsOf(b, "apache", 1, cat), rand.New(rand.NewPCG(1, 1))), b: b, dir: b.TempDir()}
	c.binary = filepath.Join(c.dir, "lienstream")
	out, err := exec.Command("go", "build", "-o", c.binary, "github.com/lienstream/lienstream/cmd/lienstream").CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	var file bytes.Buffer
	check(b, deployed().Write(&file))
	check(b, os.WriteFile(filepath.Join(c.dir, "1.json"), file.Bytes(), 0o600))
	check(b, os.WriteFile(filepath.Join(c.dir, "keys"), []byte(sealingKey), 0o600))
	c.ops, err = freeport.Address()
	check(b, err)
	query, err := freeport.Address()
	check(b, err)
	c.flags = []string{
		"processors", "--applications=market,notifier", "--instance=a", "--ops-addr=" + c.ops, "--query-addr=" + query, "--advertise=" + query,
		"--chain-id=1", "--deployment=" + filepath.Join(c.dir, "1.json"), "--data-dir=" + filepath.Join(c.dir, "data"),
		"--kafka=" + c.cfg.Brokers[0], "--kafka-prefix=n", "--notify-keys-file=" + filepath.Join(c.dir, "keys"),
		fmt.Sprintf("--smtp=127.0.0.1:%d", c.base.SMTP), "--smtp-plain", "--smtp-from=start-0@lien.example", "--smtp-rate=100",
		"--notify-public-url=https://notify.example",
		"--memory=" + cmp.Or(os.Getenv("LIENSTREAM_MEMORY"), "192MiB"),
	}
	c.starts = []*process{{start: &start{}, dead: make(chan struct{})}} // whose mails come
	close(c.starts[0].dead)
	c.last = oneOfEach(c.cat.Partitions)
	c.count()
	b.Cleanup(func() { c.end(syscall.SIGKILL) })
	return c
}

// count counts the alerts that come to their topic.
func (c *city) count() {
	topic, _ := c.cat.Find(topics.KindEvent, topics.FamilyAlert)
	for p := range c.cat.Partitions {
		r, err := kafka.NewReader(c.cfg, topic.Name(), p, kafka.Start, kafka.ReaderOptions{})
		check(c.b, err)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				records, err := r.Poll(ctx, nil)
				if err != nil {
					return
				}
				c.fired.Add(int64(len(records)))
			}
		}()
		c.b.Cleanup(func() {
			cancel()
			<-done
			r.Close()
		})
	}
}

// begin starts the program.
func (c *city) begin() {
	c.b.Helper()
	output, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(c.b, err)
	defer func() { _ = output.Close() }()
	c.running, c.ended = exec.Command(c.binary, c.flags...), make(chan struct{})
	c.running.Stdout, c.running.Stderr = output, output
	c.running.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(c.b, c.running.Start())
	go func() {
		_ = c.running.Wait()
		close(c.ended)
	}()
}

func (c *city) end(how os.Signal) {
	if c.running != nil {
		_ = c.running.Process.Signal(how)
		<-c.ended
	}
}

// answers waits until the program answers for every partition.
func (c *city) answers() {
	c.b.Helper()
	routing := read.DefaultConfig()
	routing.Application, routing.Partitions = topics.AppNotifier, c.cat.Partitions
	routing.Owners = func() (read.Feed, error) {
		return kafka.NewReader(c.cfg, c.cat.OwnersTopic(), 0, kafka.Start, kafka.ReaderOptions{})
	}
	router, err := read.NewRouter(routing)
	check(c.b, err)
	producer, err := kafka.NewProducer(c.cfg, "users", kafka.ProducerOptions{})
	check(c.b, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = router.Run(ctx) // it ends when it is told to
	}()
	c.b.Cleanup(func() {
		cancel()
		<-done
		producer.Close()
	})
	c.client = notifier.NewClient(c.cat, producer, router)
	polltest.Within(c.b, 10*time.Minute, func() error {
		select {
		case <-c.ended:
			text, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			c.b.Fatalf("the program ended: %s", text[max(0, len(text)-2000):])
		default:
		}
		_, err := c.client.Health(ctx)
		return err
	})
}

// memory is a figure of the program's memory, as the system counts it, in MB.
func (c *city) memory(name string) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.running.Process.Pid))
	check(c.b, err)
	_, line, _ := bytes.Cut(status, []byte(name+":"))
	kB, err := strconv.Atoi(string(bytes.Fields(line)[0]))
	check(c.b, err)
	return float64(kB) * 1024 / 1e6
}

// ask is an answer of the program's port for operators.
func (c *city) ask(path string) string {
	c.b.Helper()
	req, err := http.NewRequestWithContext(c.b.Context(), http.MethodGet, "http://"+c.ops+"/"+path, http.NoBody)
	check(c.b, err)
	res, err := http.DefaultClient.Do(req)
	check(c.b, err)
	text, err := io.ReadAll(res.Body)
	check(c.b, errors.Join(err, res.Body.Close()))
	return string(text)
}

// counted is a counter of the program.
func (c *city) counted(name string) float64 {
	_, text, _ := strings.Cut(c.ask("metrics"), "\n"+name+" ")
	line, _, _ := strings.Cut(text, "\n")
	n, err := strconv.ParseFloat(line, 64)
	check(c.b, err)
	return n
}

// BenchmarkProcess: the program itself, `lienstream processors --memory=…`, with a million subscribers and 100,000 open deals,
// on Apache Kafka. Of its memory as the system sees it, at most: first-MB while it applies all subscriptions and deals at once,
// restart-MB and wiped-MB after a stop with its state, and without. queued-ms is from the block that makes 10,000 alerts due
// until all are in their topic, and what the program spends on it is beside it; mails/s are what its receiver gets then, of the 100 that the channel may send; restart-ms is
// from its start until it answers for every partition. LIENSTREAM_SUBSCRIBERS and LIENSTREAM_MEMORY say how many and how much.
func BenchmarkProcess(b *testing.B) {
	subscribers := uint64(1_000_000)
	if n, err := strconv.ParseUint(os.Getenv("LIENSTREAM_SUBSCRIBERS"), 10, 64); err == nil {
		subscribers = n
	}
	c := newCity(b)
	c.crowd(subscribers)
	c.market()
	c.begin()
	c.answers()
	c.block(10)
	c.block(0) // by which the last is safe
	c.told()
	first := c.memory("VmHWM")
	for b.Loop() { // once: it takes long enough
		c.block(hour)
		cpu, allocated := c.counted("process_cpu_seconds_total"), c.counted("go_memstats_alloc_bytes_total")
		began := time.Now()
		c.block(0) // by which the last is safe
		polltest.Within(b, time.Minute, func() error {
			if n := c.fired.Load(); n != dueAtOnce {
				return fmt.Errorf("%d are queued", n)
			}
			return nil
		})
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "queued-ms")
		b.ReportMetric(1000*(c.counted("process_cpu_seconds_total")-cpu), "queued-cpu-ms")
		b.ReportMetric((c.counted("go_memstats_alloc_bytes_total")-allocated)/1e6, "queued-alloc-MB")
		came := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.came)
		}
		polltest.Until(b, "mails arrive", func() bool { return came() > 100 })
		from, since := came(), time.Now()
		polltest.Within(b, time.Minute, func() error {
			if time.Since(since) < 10*time.Second {
				return fmt.Errorf("%d have come", came())
			}
			return nil
		})
		b.ReportMetric(float64(came()-from)/time.Since(since).Seconds(), "mails/s")
	}
	b.ReportMetric(first, "first-MB") // the loop forgets what was reported before it
	b.ReportMetric(c.memory("VmRSS"), "MB")
	c.end(syscall.SIGTERM)
	began := time.Now()
	c.begin()
	c.answers()
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "restart-ms")
	b.ReportMetric(c.memory("VmHWM"), "restart-MB")
	c.end(syscall.SIGTERM)
	check(b, os.RemoveAll(filepath.Join(c.dir, "data")))
	began = time.Now()
	c.begin()
	c.answers()
	b.ReportMetric(float64(time.Since(began).Milliseconds()), "wiped-ms")
	b.ReportMetric(c.memory("VmHWM"), "wiped-MB")
}

// crowd has so many wallets subscribe.
func (c *city) crowd(subscribers uint64) {
	keys, err := notifier.ParseKeys(sealingKey)
	check(c.b, err)
	check(c.b, c.tx.Begin())
	for i := range subscribers {
		wallet := walletOf(i)
		sealed, err := keys.Seal(wallet, notifier.Email, fmt.Sprintf("a%d@example.com", i))
		check(c.b, err)
		cmd := notifier.Command{Subscribe: &notifier.Subscribe{
			ID: notifier.ID{1}, Wallet: wallet, Channel: notifier.Email, Sealed: sealed, Mask: "a•••@example.com", Prefs: 0x1f, Unix: 1,
		}}
		rec, err := cmd.Record(c.cat, wallet)
		check(c.b, err)
		c.tx.Produce(c.b.Context(), rec)
		if i%10_000 == 9_999 {
			check(c.b, c.tx.Commit(c.b.Context()))
			check(c.b, c.tx.Begin())
		}
	}
	check(c.b, c.tx.Commit(c.b.Context()))
}

// market opens the deals, of which some are due an alert an hour later, and the others not for days.
func (c *city) market() {
	const perBlock = 1000
	c.tip = openDeals / perBlock * facts.TickBlocks
	for from := uint64(0); from < openDeals; from += perBlock {
		var logs []*topics.Log
		for i := from; i < from+perBlock; i++ {
			now := c.head.Timestamp + 1
			d := &deal{id: int64(i + 1), borrower: walletOf(i), lender: walletOf(1<<41 + i), fundedAt: now, expiry: now + 100*hour + i}
			if i < dueAtOnce {
				d.expiry = genesis + 2*hour + openDeals/perBlock
			}
			d.graceEnd = d.expiry + 24*hour
			logs = append(logs, c.listed(d), c.funded(d))
		}
		c.block(1, logs...)
	}
}

// told waits until the facts have told of the last block, and the program has applied that.
func (c *city) told() {
	c.b.Helper()
	polltest.Within(c.b, 10*time.Minute, func() error {
		at := 0
		for line := range strings.Lines(c.ask("metrics")) {
			name, block, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.ParseFloat(block, 64); err == nil && uint64(n) == c.head.Number &&
				strings.HasPrefix(name, `lienstream_processors_block_number{application="facts"`) {
				at++
			}
		}
		if at < int(c.cat.Partitions) {
			return fmt.Errorf("%d partitions of the facts are at block %d", at, c.head.Number)
		}
		return nil
	})
	for i, wallet := range c.last {
		id := notifier.ID{0xff, byte(i)}
		polltest.Within(c.b, 10*time.Minute, func() error {
			ctx, cancel := context.WithTimeout(c.b.Context(), time.Minute)
			defer cancel()
			_, err := c.client.Unsubscribe(ctx, &notifier.Unsubscribe{ID: id, Wallet: wallet, Channel: notifier.Push, Unix: 1})
			return err
		})
	}
}
