package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/polltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// promises are what must hold on the embedded broker and on Apache Kafka alike.
var promises = []struct {
	name string
	test func(t *testing.T, b *testBroker)
}{
	{"CommittedRecordsAreReadInOrder", committedRecordsAreReadInOrder},
	{"OpenTransactionIsNotRead", openTransactionIsNotRead},
	{"FormerHolderIsFenced", formerHolderIsFenced},
	{"OwnTimeoutIsNobodyElse", ownTimeoutIsNobodyElse},
	{"KilledCommitIsReadBack", killedCommitIsReadBack},
	{"ReadBackCrossesMarkersAndAborts", readBackCrossesMarkersAndAborts},
	{"ReadBackEndsWhereThePartitionBegins", readBackEndsWhereThePartitionBegins},
	{"LastRecordAloneIsFetched", lastRecordAloneIsFetched},
	{"OutOfRange", outOfRange},
	{"KillEndsAPoll", killEndsAPoll},
	{"ReadersComeAndGo", readersComeAndGo},
	{"UnreadHoldsUpNobody", unreadHoldsUpNobody},
	{"NothingIsReadAheadOfWhatIsInUse", nothingIsReadAheadOfWhatIsInUse},
	{"OpenedIsReadAtOnce", openedIsReadAtOnce},
	{"BacklogWaitsForNobody", backlogWaitsForNobody},
	{"ReaderErrors", readerErrors},
	{"HistoryIsShared", historyIsShared},
	{"CommitEndsTheLinger", commitEndsTheLinger},
	{"FlushIsNoCommit", flushIsNoCommit},
	{"SentIsThere", sentIsThere},
	{"PartitionsMoveBetweenMembers", partitionsMoveBetweenMembers},
	{"StaticMemberComesBack", staticMemberComesBack},
	{"AppliedIsReady", appliedIsReady},
	{"DriftIsFoundAndMended", driftIsFoundAndMended},
	{"DriftStopsTheStart", driftStopsTheStart},
	{"TailPrintsDecodedRecords", tailPrintsDecodedRecords},
}

// What was flushed is at the broker, and committed or aborted with what comes after it.
func flushIsNoCommit(t *testing.T, b *testBroker) {
	tx := b.transactor(t, "w")
	b.commit(t, tx, "before")
	begin(t, tx)
	sent := b.produce(t, tx, "aborted")
	tx.Flush(t.Context())
	if sent[0].Offset < 1 {
		t.Fatalf("flushed at offset %d", sent[0].Offset)
	}
	if err := tx.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	begin(t, tx)
	b.produce(t, tx, "flushed")
	tx.Flush(t.Context())
	b.produce(t, tx, "last")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := b.read(t, "last"), []string{"before", "flushed", "last"}; !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
	killed := b.transactor(t, "k")
	begin(t, killed)
	b.produce(t, killed, "lost")
	killed.Kill()
	killed.Flush(t.Context())
	if err := killed.Commit(t.Context()); !errors.Is(err, kafka.ErrKilled) {
		t.Fatalf("a commit after a flush that failed: %v", err)
	}
}

func TestPromises(t *testing.T) {
	t.Run("kfake", func(t *testing.T) { keepPromises(t, brokertest.Start(t, "kfake")) })
	t.Run("apache", func(t *testing.T) {
		apache := brokertest.Apache(t)
		keepPromises(t, apache.Addrs())
		t.Run("FrozenBrokerHoldsNoCommit", func(t *testing.T) { frozenBrokerHoldsNoCommit(t, apache) })
		t.Run("BrokersOwnTopics", func(t *testing.T) { brokersOwnTopics(t, newTestBroker(t, apache.Addrs(), "BrokersOwnTopics")) })
		t.Run("CommandsHaveTheBrokersTime", func(t *testing.T) { // kfake keeps that of the producer
			commandsHaveTheBrokersTime(t, newTestBroker(t, apache.Addrs(), "CommandsHaveTheBrokersTime"))
		})
	})
}

func keepPromises(t *testing.T, addrs []string) {
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) { p.test(t, newTestBroker(t, addrs, p.name)) })
	}
}

// testBroker is a broker with a catalogue of its own applied.
type testBroker struct {
	cfg   kafka.Config
	cat   topics.Catalogue
	admin *kafka.Admin
	log   string // a topic that deletes
	table string // a topic that compacts
}

func newTestBroker(t testing.TB, addrs []string, prefix string) *testBroker {
	t.Helper()
	cfg := brokertest.Config(addrs, prefix)
	cfg.Timeout = 30 * time.Second
	return newTestBrokerOf(t, cfg)
}

func openEmbedded(t *testing.T) []string { return brokertest.Start(t, "kfake") }

func newTestBrokerOf(t testing.TB, cfg kafka.Config) *testBroker {
	t.Helper()
	b := &testBroker{
		cfg: cfg,
		cat: topics.Catalogue{Prefix: cfg.Prefix, ChainID: 4663, Partitions: 4},
	}
	b.log, b.table = b.cat.Raw(), b.cat.Changelog(topics.AppMarket)
	admin, err := kafka.NewAdmin(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	b.admin = admin
	if err := admin.Apply(t.Context(), b.cat.Topics()); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *testBroker) transactor(t testing.TB, id string) *kafka.Transactor {
	t.Helper()
	tx, err := kafka.NewTransactor(b.cfg, b.cat.Prefix+"-"+id, kafka.TransactorOptions{Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tx.Close)
	if err := tx.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tx
}

func begin(t testing.TB, tx *kafka.Transactor) {
	t.Helper()
	if err := tx.Begin(); err != nil {
		t.Fatal(err)
	}
}

func (b *testBroker) produce(t testing.TB, tx *kafka.Transactor, values ...string) []*kafka.Record {
	t.Helper()
	rs := make([]*kafka.Record, len(values))
	for i, v := range values {
		rs[i] = &kafka.Record{Topic: b.log, Partition: 1, Key: []byte("k"), Value: []byte(v)}
		tx.Produce(t.Context(), rs[i])
	}
	return rs
}

func (b *testBroker) commit(t testing.TB, tx *kafka.Transactor, values ...string) []*kafka.Record {
	t.Helper()
	begin(t, tx)
	rs := b.produce(t, tx, values...)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rs
}

// read reads the partition's committed values up to the one called last.
func (b *testBroker) read(t *testing.T, last string) []string {
	t.Helper()
	r, err := kafka.NewReader(b.cfg, b.log, 1, kafka.Start, kafka.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var values []string
	var buf []*kafka.Record
	for {
		buf, err = r.Poll(ctx, buf)
		if err != nil {
			t.Fatalf("after %q: %v", values, err)
		}
		for _, rec := range buf {
			values = append(values, string(rec.Value))
			if string(rec.Value) == last {
				return values
			}
		}
	}
}

// decided waits until no transaction of the log is undecided: a broker may answer a commit before it has written its markers.
func (b *testBroker) decided(t *testing.T) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	polltest.Until(t, "the last stable offset is the high watermark", func() bool {
		stable, err := adm.ListCommittedOffsets(t.Context(), b.log)
		all, err2 := adm.ListEndOffsets(t.Context(), b.log)
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for p, end := range all[b.log] {
			s, ok := stable.Lookup(b.log, p)
			if err := errors.Join(s.Err, end.Err); err != nil {
				t.Fatal(err)
			}
			if !ok || s.Offset != end.Offset {
				return false
			}
		}
		return true
	})
}

func (b *testBroker) readBack(t *testing.T, n int) []string {
	t.Helper()
	b.decided(t)
	var values []string
	err := kafka.ReadBack(t.Context(), b.cfg, b.log, 1, n, func(r *kafka.Record) bool {
		values = append(values, string(r.Value))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func committedRecordsAreReadInOrder(t *testing.T, b *testBroker) {
	tx := b.transactor(t, "a")
	rs := b.commit(t, tx, "1", "2")
	if rs[0].Offset != 0 || rs[1].Offset != 1 {
		t.Errorf("offsets after the commit: %d, %d", rs[0].Offset, rs[1].Offset)
	}
	begin(t, tx)
	b.produce(t, tx, "aborted")
	if err := tx.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.commit(t, tx, "3")
	if got, want := b.read(t, "3"), []string{"1", "2", "3"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func openTransactionIsNotRead(t *testing.T, b *testBroker) {
	b.commit(t, b.transactor(t, "a"), "1")
	open := b.transactor(t, "b")
	begin(t, open)
	b.produce(t, open, "open")
	// The record is on the broker once another transaction's Init has aborted it.
	tx := b.transactor(t, "b")
	b.commit(t, tx, "2")
	if got, want := b.read(t, "2"), []string{"1", "2"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func formerHolderIsFenced(t *testing.T, b *testBroker) {
	old := b.transactor(t, "a")
	b.commit(t, old, "1")
	begin(t, old)
	b.produce(t, old, "fenced")
	b.commit(t, b.transactor(t, "a"), "2")
	b.produce(t, old, "fenced too")
	if err := old.Commit(t.Context()); !errors.Is(err, kafka.ErrFenced) {
		t.Errorf("commit of the former holder: %v, want ErrFenced", err)
	}
	if err := old.Begin(); err == nil {
		t.Error("a dead transactor begins another transaction")
	}
	if got, want := b.readBack(t, 10), []string{"2", "1"}; !slices.Equal(got, want) {
		t.Errorf("read back %q, want %q", got, want)
	}
}

// The coordinator aborts a transaction that is older than its timeout, as that of a process that was stopped, and raises the
// producer epoch. That is no other holder: only one that took the ID is.
func ownTimeoutIsNobodyElse(t *testing.T, b *testBroker) {
	const timeout = 2 * time.Second
	cases := []struct {
		name          string
		before, after bool // another one takes the ID before the abort, or after it
		produce       bool // the epoch is found out by what is produced, otherwise by the commit
	}{
		{name: "produce", produce: true},
		{name: "commit"},
		{name: "taken", before: true, produce: true},
		{name: "taken-commit", before: true},
		{name: "taken-after", after: true, produce: true},
		{name: "taken-after-commit", after: true},
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	txs := make([]*kafka.Transactor, len(cases))
	began := time.Now()
	for i, c := range cases {
		id := b.cat.Prefix + "-" + c.name
		if txs[i], err = kafka.NewTransactor(b.cfg, id, kafka.TransactorOptions{Timeout: timeout}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(txs[i].Close)
		if err := txs[i].Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.commit(t, txs[i], c.name+" before")
		begin(t, txs[i])
		b.produce(t, txs[i], c.name+" aborted")
		if !txs[i].Flush(t.Context()) {
			t.Fatal(c.name, ": it is not at the broker")
		}
		if c.before {
			b.commit(t, b.transactor(t, c.name), c.name+" of the other")
		}
	}
	for i, c := range cases {
		polltest.Until(t, "the transaction is over and was too old", func() bool {
			now, err := kadm.NewClient(cl).DescribeTransactions(t.Context(), b.cat.Prefix+"-"+c.name)
			if err != nil {
				t.Fatal(err)
			}
			state := now[b.cat.Prefix+"-"+c.name].State
			return (state == "CompleteAbort" || state == "CompleteCommit" || state == "Empty") && time.Since(began) > timeout+time.Second
		})
		if c.after {
			b.commit(t, b.transactor(t, c.name), c.name+" of the other")
		}
		if c.produce {
			b.produce(t, txs[i], c.name+" after")
		}
		want := kafka.ErrUnknown
		if c.before || c.after {
			want = kafka.ErrFenced
		}
		if err := txs[i].Commit(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: commit: %v, want %v", c.name, err, want)
		}
		if err := txs[i].Begin(); !errors.Is(err, want) {
			t.Errorf("%s: begin after it: %v, want %v", c.name, err, want)
		}
	}
}

// A commit that is cut off is committed or not: what the topic holds says so, whole or not at all. The
// cuts sweep the time that a commit takes.
func killedCommitIsReadBack(t *testing.T, b *testBroker) {
	const cuts = 30
	tx := b.transactor(t, "a")
	b.commit(t, tx, "warm")
	start := time.Now()
	b.commit(t, tx, "begin")
	took := time.Since(start)

	want := []string{"warm", "begin"}
	var returned, found int
	for i := range cuts {
		tx := b.transactor(t, "a")
		begin(t, tx)
		first, second := fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i)
		b.produce(t, tx, first, second)
		timer := time.AfterFunc(took*time.Duration(i)/(cuts/2), tx.Kill)
		err := tx.Commit(t.Context())
		timer.Stop()
		tx.Close()
		b.transactor(t, "a") // as the next holder does: ends what is open
		switch last := b.readBack(t, 2); {
		case slices.Equal(last, []string{second, first}):
			want = append(want, first, second)
			found++
		case err == nil:
			t.Fatalf("committed %s and %s, the end of the topic is %q", first, second, last)
		case !slices.Equal(last, []string{want[len(want)-1], want[len(want)-2]}):
			t.Fatalf("half a transaction at the end: %q", last)
		}
		if err == nil {
			returned++
		}
	}
	t.Logf("a commit takes %v; of %d, %d returned and %d were found committed", took, cuts, returned, found)
	b.commit(t, b.transactor(t, "a"), "end")
	if got := b.read(t, "end"); !slices.Equal(got, append(want, "end")) {
		t.Errorf("read %q, want %q", got, want)
	}
}

func readBackCrossesMarkersAndAborts(t *testing.T, b *testBroker) {
	if got := b.readBack(t, 0); len(got) != 0 {
		t.Errorf("read back %q from an empty partition", got)
	}
	tx := b.transactor(t, "a")
	b.commit(t, tx, "first")
	b.commit(t, tx, "second")
	for range 60 { // markers and aborted records fill the first windows
		begin(t, tx)
		b.produce(t, tx, "aborted", "aborted")
		if err := tx.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := b.readBack(t, 0), []string{"second", "first"}; !slices.Equal(got, want) {
		t.Errorf("read back %q, want %q", got, want)
	}
	if got, want := b.readBack(t, 1), []string{"second"}; !slices.Equal(got, want) {
		t.Errorf("read back one: %q, want %q", got, want)
	}
}

func readBackEndsWhereThePartitionBegins(t *testing.T, b *testBroker) {
	tx := b.transactor(t, "a")
	if err := b.fill(t.Context(), tx, 200, func(i int) []byte { return []byte(strconv.Itoa(i)) }); err != nil {
		t.Fatal(err)
	}
	b.decided(t)
	var offsets []int64
	var all []string
	err := kafka.ReadBack(t.Context(), b.cfg, b.log, 1, 0, func(r *kafka.Record) bool {
		offsets, all = append(offsets, r.Offset), append(all, string(r.Value))
		return true
	})
	if err != nil || len(all) != 200 {
		t.Fatalf("read back %d records: %v", len(all), err)
	}
	for _, left := range []int{150, 64, 1} {
		b.deleteRecords(t, offsets[left-1])
		if got := b.readBack(t, 0); !slices.Equal(got, all[:left]) {
			t.Errorf("read back %q of %d records that are left", got, left)
		}
	}
	b.deleteRecords(t, offsets[0]+1)
	if got := b.readBack(t, 0); len(got) > 0 {
		t.Errorf("read back %q, and all are deleted", got)
	}
}

// deleteRecords deletes the records below an offset.
func (b *testBroker) deleteRecords(t *testing.T, below int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var offsets kadm.Offsets
	offsets.AddOffset(b.log, 1, below, -1)
	done, err := kadm.NewClient(cl).DeleteRecords(t.Context(), offsets)
	if err = errors.Join(err, done.Error()); err != nil {
		t.Fatal(err)
	}
}

// The last record costs no fetch of the batch before it, which may be a large commit.
func lastRecordAloneIsFetched(t *testing.T, b *testBroker) {
	const size = 200_000
	b.cfg.Compression = "none"
	tx := b.transactor(t, "a")
	b.commit(t, tx, strings.Repeat("large", size/5), "before")
	b.commit(t, tx, "last")
	m := &metered{}
	b.cfg.Dial = m.dial
	if got, want := b.readBack(t, 1), []string{"last"}; !slices.Equal(got, want) {
		t.Errorf("read back one: %q, want %q", got, want)
	}
	if n := m.read.Load(); n == 0 || n > size/10 {
		t.Errorf("%d bytes were read for one record", n)
	}
}

// metered counts the bytes that its connections read.
type metered struct{ read atomic.Int64 }

type meteredConn struct {
	net.Conn
	of *metered
}

func (m *metered) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return meteredConn{c, m}, err
}

func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.of.read.Add(int64(n))
	return n, err
}

func outOfRange(t *testing.T, b *testBroker) {
	b.commit(t, b.transactor(t, "a"), "1")
	r, err := kafka.NewReader(b.cfg, b.log, 1, 1000, kafka.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := r.Poll(ctx, nil); !errors.Is(err, kafka.ErrOutOfRange) {
		t.Errorf("poll behind the end: %v, want ErrOutOfRange", err)
	}
}

func killEndsAPoll(t *testing.T, b *testBroker) {
	r, err := kafka.NewReader(b.cfg, b.log, 1, 0, kafka.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := r.Poll(t.Context(), nil); done <- err }()
	r.Kill()
	if err := <-done; !errors.Is(err, kafka.ErrKilled) {
		t.Errorf("poll of a killed reader: %v, want ErrKilled", err)
	}
	r.Close()
}

// Records that wait for others go with the commit: a linger is no delay of it.
func commitEndsTheLinger(t *testing.T, b *testBroker) {
	tx, err := kafka.NewTransactor(b.cfg, b.cat.Prefix+"-lingers", kafka.TransactorOptions{Timeout: 30 * time.Second, Linger: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if err := tx.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.commit(t, tx, "1", "2")
	b.commit(t, tx, "3")
	if got := b.readBack(t, 3); !slices.Equal(got, []string{"3", "2", "1"}) {
		t.Errorf("read back %q", got)
	}
}

// A broker that takes connections and never answers must not hold a commit longer than its timeout.
func frozenBrokerHoldsNoCommit(t *testing.T, apache *broker.Apache) {
	b := newTestBroker(t, apache.Addrs(), "frozen")
	b.transactor(t, "a") // the first takes seconds: a new broker makes the topic of its coordinators
	tx, err := kafka.NewTransactor(b.cfg, "frozen-a", kafka.TransactorOptions{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Close()
	if err := tx.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.commit(t, tx, "1")
	begin(t, tx)
	b.produce(t, tx, "2")
	apache.Pause()
	start := time.Now()
	err = tx.Commit(t.Context())
	took := time.Since(start)
	apache.Resume()
	if err == nil {
		t.Fatal("a frozen broker committed")
	}
	if took > 3*time.Second {
		t.Errorf("the commit came back after %v", took)
	}
	b.commit(t, b.transactor(t, "a"), "3")
	if got := b.readBack(t, 1); !slices.Equal(got, []string{"3"}) {
		t.Errorf("read back %q", got)
	}
}

// A producer ID has 32,767 epochs, and a transaction may take one. Who commits past the last goes on, and who is replaced there
// commits nothing more.
func TestEpochsRunOut(t *testing.T) {
	for _, kind := range brokertest.Kinds {
		t.Run(kind, func(t *testing.T) {
			if kind == "apache" && os.Getenv("LIENSTREAM_SOAK") == "" {
				t.Skip("it takes Apache Kafka a minute: make soak")
			}
			epochsRunOut(t, newTestBroker(t, brokertest.Start(t, kind), "EpochsRunOut"))
		})
	}
}

func epochsRunOut(t *testing.T, b *testBroker) {
	worn := func(id string, left int16) {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(b.cfg.Brokers...))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = new(b.cat.Prefix+"-"+id), 10_000
		for epoch := int16(0); epoch < math.MaxInt16-1-left; {
			resp, err := req.RequestWith(t.Context(), cl)
			if err == nil {
				err = kerr.ErrorForCode(resp.ErrorCode)
			}
			if err != nil {
				t.Fatal(err)
			}
			epoch = resp.ProducerEpoch
		}
	}
	worn("w", 5)
	tx := b.transactor(t, "w")
	var want []string
	ids := map[int64]bool{}
	for i := range 12 {
		want = append(want, strconv.Itoa(i))
		ids[b.commit(t, tx, want[i])[0].ProducerID] = true
	}
	if len(ids) != 2 {
		t.Errorf("%d producer IDs were used", len(ids))
	}
	if got := b.read(t, want[len(want)-1]); !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
	worn("k", 1)
	former := b.transactor(t, "k")
	begin(t, former)
	b.produce(t, former, "lost")
	next := b.transactor(t, "k")
	if err := former.Commit(t.Context()); err == nil {
		t.Error("the former holder commits")
	}
	b.commit(t, next, "next")
	if got := b.read(t, "next"); !slices.Equal(got, append(want, "next")) {
		t.Errorf("read %v", got)
	}
}
