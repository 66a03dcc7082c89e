package notifier_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ethereum/go-ethereum/crypto"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/processors/engine"
	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/processors/notifier"
	serving "github.com/lienstream/lienstream/serving/notifier"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

// street is a network that stands still while it is closed: nothing more comes from the brokers.
type street struct {
	mu   sync.Mutex
	open chan struct{} // closed: it is
}

func newStreet() *street {
	s := &street{open: make(chan struct{})}
	close(s.open)
	return s
}

func (s *street) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = make(chan struct{})
}

func (s *street) reopen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.open)
}

func (s *street) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &lane{conn, s}, err
}

type lane struct {
	net.Conn
	of *street
}

func (l *lane) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	l.of.mu.Lock()
	open := l.of.open
	l.of.mu.Unlock()
	<-open
	return n, err
}

// pair is two nodes, each with a service beside it: the first owns the partition, the second has a copy, which lags
// while the street is closed, and reaches the first by HTTP.
type pair struct {
	*house
	street  *street
	frozen  atomic.Bool // the first answers no other node
	pause   atomic.Int64
	nodes   [2]*engine.Node
	holders func() []read.Holder // that the second knows
}

func newPair(t *testing.T) *pair {
	w := &pair{house: &house{t: t, now: time.Now().Unix() - 250, log: zap.NewNop()}, street: newStreet()}
	h := w.house
	h.cfg = brokertest.Config(brokertest.Start(t, "kfake"), "n")
	h.cat = topics.Catalogue{Prefix: "n", ChainID: 1, Partitions: 1}
	brokertest.Apply(t, h.cfg, h.cat.Topics())
	var err error
	h.chain, err = devchain.New(devchain.Config{})
	check(t, err)
	t.Cleanup(h.stopChain)
	chain := h.over(h.chain.HTTP())
	keys, err := notifier.ParseKeys(keyText)
	check(t, err)
	h.wallet, err = crypto.GenerateKey()
	check(t, err)
	for i, instance := range []string{"a", "b"} {
		cfg := engine.DefaultConfig()
		cfg.Kafka, cfg.Catalogue, cfg.AppName, cfg.Instance = h.cfg, h.cat, topics.AppNotifier, instance
		cfg.Dir, cfg.FS, cfg.Registerer, cfg.Logger, cfg.Standbys = "/"+instance, vfs.NewMem(), h.metrics.New(), h.log, 1
		if i == 1 {
			cfg.Kafka.Dial = w.street.dial
		}
		server := httptest.NewUnstartedServer(nil)
		cfg.Addr = server.Listener.Addr().String()
		node, err := engine.NewCommands(cfg, notifier.New(h.cat.Partitions, h.metrics.New()))
		check(t, err)
		w.nodes[i] = node
		answers := read.NewHandler(t.Context(), zap.NewNop(), read.Served{Source: node, Application: notifier.Application()})
		server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if w.frozen.Load() {
				<-t.Context().Done() // the request's own does not end before its body is read
				return
			}
			select {
			case <-time.After(time.Duration(w.pause.Load())):
			case <-r.Context().Done():
			}
			answers.ServeHTTP(rw, r)
		})
		server.Start()
		t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
		polltest.Run(t, node.Run)
		producer, err := kafka.NewProducer(h.cfg, "notify-"+instance, kafka.ProducerOptions{})
		check(t, err)
		t.Cleanup(producer.Close)
		routing := read.DefaultConfig()
		routing.Application, routing.Partitions, routing.Local, routing.Instance = topics.AppNotifier, h.cat.Partitions, node, instance
		routing.Owners = func() (read.Feed, error) {
			return kafka.NewReader(h.cfg, h.cat.OwnersTopic(), 0, kafka.Start, kafka.ReaderOptions{})
		}
		router, err := read.NewRouter(routing)
		check(t, err)
		polltest.Run(t, func(ctx context.Context) error {
			if err := router.Run(ctx); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
		w.holders = router.Holders
		s, err := serving.New(serving.DefaultConfig(), notifier.NewClient(h.cat, producer, router), chain, keys, h.log, h.metrics.New())
		check(t, err)
		h.services = append(h.services, s)
		polltest.Within(t, time.Minute, func() error { // the first owns the partition before there is a second
			if marks := node.Watermarks(); len(marks) == 0 || marks[0].Role != []topics.HolderRole{topics.RoleOwner, topics.RoleStandby}[i] {
				return fmt.Errorf("%s holds %v", instance, marks)
			}
			return h.services[i].Ready(t.Context())
		})
	}
	return w
}

// A read through a node whose own copy lags sees what was answered to be written through another one: however slow the
// owner is to answer it, and where it does not answer at all, the read fails, and does not tell what was.
func TestAReadThroughALaggingCopySeesTheWrite(t *testing.T) {
	w := newPair(t)
	lower := strings.ToLower(addressOf(w.wallet).Hex())
	post := func(address string) {
		t.Helper()
		m := w.message(lower, "email", address, w.next())
		w.want(w.do(0, http.MethodPost, "/notify", postBody(lower, "email", address, allPrefs, m, sign(t, w.wallet, m))), `200 {"ok":true}`)
	}
	post("ann@example.com")
	polltest.Until(t, "the copy has the first write, and the owner is known", func() bool {
		of, copied := w.nodes[0].Watermarks(), w.nodes[1].Watermarks()
		return len(of) == 1 && len(copied) == 1 && of[0].At == copied[0].At && w.holders()[0].Owner == "a"
	})
	w.street.close()
	defer w.street.reopen()
	w.pause.Store(int64(300 * time.Millisecond))
	post("bob@example.com")
	for range 3 { // the owner is known to be slow by then
		if got := w.do(1, http.MethodGet, "/notify/"+lower, ""); !strings.Contains(got, "b•••@example.com") {
			t.Fatalf("what was answered to be written is not there: %s", got)
		}
	}
	if copied := w.nodes[1].Watermarks()[0]; copied.At == w.nodes[0].Watermarks()[0].At {
		t.Fatal("the copy does not lag")
	}
	w.frozen.Store(true)
	w.want(w.do(1, http.MethodGet, "/notify/"+lower, ""), "503 UPSTREAM_UNAVAILABLE")
}

// TestAWriteNeedsNoReadOfTheOwner: while the owner does not answer, a write is applied, and the standby shows it.
func TestAWriteNeedsNoReadOfTheOwner(t *testing.T) {
	w := newPair(t)
	lower := strings.ToLower(addressOf(w.wallet).Hex())
	post := func() string {
		m := w.message(lower, "email", "ann@example.com", w.next())
		return w.do(1, http.MethodPost, "/notify", postBody(lower, "email", "ann@example.com", allPrefs, m, sign(t, w.wallet, m)))
	}
	w.want(post(), `200 {"ok":true}`)
	w.frozen.Store(true)
	w.want(post(), `200 {"ok":true}`)
}
