package broker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/freeport"
)

// ApacheConfig of an Apache Kafka broker.
type ApacheConfig struct {
	LibsDir string // the jars: mvn -f docker/kafka/pom.xml dependency:copy-dependencies
	Dir     string // for its log and settings; may contain those of an earlier run
	Port    int    // on loopback; 0: a free one
	HeapMB  int    // 512

	Listeners []Listener        // besides the one of Addrs
	Settings  map[string]string // broker settings, overriding ours

	ID          int      // of the node; 1
	Controllers []string // of the cluster: host:port of the nodes 1, 2, …; none: this node is alone
}

// Listener is a further address of a broker, for clients that connect through a proxy.
type Listener struct {
	Addr       string // listen address
	Advertised string // address that clients are told
}

// Apache is a node of Apache Kafka (KRaft, broker and controller in one) in its own process.
type Apache struct {
	cfg  ApacheConfig
	addr string
	logs *os.File

	mu   sync.Mutex
	cmd  *exec.Cmd
	gone chan struct{} // closed when the process has exited
}

// ErrNoKafka: there is no Java or no jars to run Apache Kafka with.
var ErrNoKafka = errors.New("apache kafka is not installed: it needs java and `mvn -f docker/kafka/pom.xml dependency:copy-dependencies`")

// StartApache formats the directory if necessary, starts the broker and waits until it responds or ctx is done.
func StartApache(ctx context.Context, cfg ApacheConfig) (*Apache, error) {
	cfg.HeapMB, cfg.ID = cmp.Or(cfg.HeapMB, 512), cmp.Or(cfg.ID, 1)
	jars, err := filepath.Glob(filepath.Join(cfg.LibsDir, "kafka_*.jar"))
	if err != nil || len(jars) == 0 {
		return nil, fmt.Errorf("%w: no jars in %q", ErrNoKafka, cfg.LibsDir)
	}
	if _, err := exec.LookPath("java"); err != nil {
		return nil, errors.Join(ErrNoKafka, err)
	}
	ports, err := freeport.Find(2)
	if err != nil {
		return nil, err
	}
	cfg.Port = cmp.Or(cfg.Port, ports[0])
	if len(cfg.Controllers) == 0 {
		cfg.Controllers = []string{loopback(ports[1])}
	}
	if cfg.ID < 1 || cfg.ID > len(cfg.Controllers) {
		return nil, fmt.Errorf("node ID %d is not one of the %d controllers", cfg.ID, len(cfg.Controllers))
	}
	a := &Apache{cfg: cfg, addr: loopback(cfg.Port)}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, err
	}
	if a.logs, err = os.OpenFile(filepath.Join(cfg.Dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.properties(), []byte(a.settings()), 0o600); err != nil {
		return nil, err
	}
	if err := a.format(ctx); err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *Apache) properties() string { return filepath.Join(a.cfg.Dir, "server.properties") }

// settings are those of a node. The short backoff is not only for tests: without it a commit that follows
// another one waits 20 ms.
func (a *Apache) settings() string {
	var voters []string
	for i, addr := range a.cfg.Controllers {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, addr))
	}
	replicas := min(len(voters), 3)
	var listen, advertise, protocols, further strings.Builder
	for i, l := range a.cfg.Listeners {
		fmt.Fprintf(&listen, ",L%d://%s", i, l.Addr)
		fmt.Fprintf(&advertise, ",L%d://%s", i, l.Advertised)
		fmt.Fprintf(&protocols, ",L%d:PLAINTEXT", i)
	}
	for _, name := range slices.Sorted(maps.Keys(a.cfg.Settings)) {
		fmt.Fprintf(&further, "%s=%s\n", name, a.cfg.Settings[name]) // of a setting that comes twice the last one counts
	}
	return strings.Join([]string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", a.cfg.ID),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s%s", a.addr, a.cfg.Controllers[a.cfg.ID-1], &listen),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://%s%s", a.addr, &advertise),
		fmt.Sprintf("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT%s", &protocols),
		"controller.listener.names=CONTROLLER",
		"log.dirs=" + filepath.Join(a.cfg.Dir, logDir),
		"auto.create.topics.enable=false",
		fmt.Sprintf("offsets.topic.replication.factor=%d", replicas),
		"offsets.topic.num.partitions=4",
		fmt.Sprintf("transaction.state.log.replication.factor=%d", replicas),
		fmt.Sprintf("transaction.state.log.min.isr=%d", max(1, replicas-1)),
		"transaction.state.log.num.partitions=8",
		"group.initial.rebalance.delay.ms=0",
		"group.min.session.timeout.ms=500",
		fmt.Sprintf("message.max.bytes=%d", topics.MaxRecordBytes),
		"log.retention.ms=-1",
		"add.partitions.to.txn.retry.backoff.ms=1",
		further.String(),
	}, "\n")
}

// format writes the cluster ID into the directory, once.
func (a *Apache) format(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(a.cfg.Dir, logDir, "meta.properties")); err == nil {
		return nil
	}
	var out bytes.Buffer
	cmd := a.java(ctx, "kafka.tools.StorageTool", "format", "-t", "bGllbnN0cmVhbWxpZW5zdA", "-c", a.properties())
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("format kafka storage: %w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

func (a *Apache) java(ctx context.Context, class string, args ...string) *exec.Cmd {
	all := append([]string{
		// The whole heap is allocated at once, as Kafka's own script does: a growing heap is so small at first
		// that every large request triggers a collection. The C2 compiler does not pay off in the minutes that
		// this broker runs.
		fmt.Sprintf("-Xms%dm", a.cfg.HeapMB), fmt.Sprintf("-Xmx%dm", a.cfg.HeapMB), "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(a.cfg.LibsDir, "*"), class,
	}, args...)
	return exec.CommandContext(ctx, "java", all...)
}

// start runs the process. ctx bounds only the wait for it.
func (a *Apache) start(ctx context.Context) error {
	cmd := a.java(context.WithoutCancel(ctx), "kafka.Kafka", a.properties())
	cmd.Stdout, cmd.Stderr = a.logs, a.logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the process must not outlive its parent
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start kafka: %w", err)
	}
	gone := make(chan struct{})
	go func() { defer close(gone); _ = cmd.Wait() }()
	a.mu.Lock()
	a.cmd, a.gone = cmd, gone
	a.mu.Unlock()
	if err := a.wait(ctx, gone); err != nil {
		a.Kill()
		return fmt.Errorf("kafka did not start: %w; its log ends with:\n%s", err, a.lastLines())
	}
	return nil
}

// wait returns when the broker answers.
func (a *Apache) wait(ctx context.Context, gone <-chan struct{}) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(a.addr))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-gone:
			cancel(errors.New("the process ended"))
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := a.answers(ctx, kadm.NewClient(client))
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for kafka at %s: %w: %w", a.addr, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// answers asks once whether the broker is one of the cluster's.
func (a *Apache) answers(ctx context.Context, admin *kadm.Client) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found, err := admin.BrokerMetadata(ctx)
	if err == nil && !slices.Contains(found.Brokers.NodeIDs(), int32(a.cfg.ID)) {
		err = fmt.Errorf("broker %d is not registered", a.cfg.ID)
	}
	return err
}

// lastLines are the end of the process's output.
func (a *Apache) lastLines() string {
	const most = 2000
	all, err := os.ReadFile(a.logs.Name())
	if err != nil {
		return err.Error()
	}
	return string(all[max(0, len(all)-most):])
}

// ID is the node's.
func (a *Apache) ID() int32 { return int32(a.cfg.ID) }

// Addrs are the addresses to connect to. A restart keeps them.
func (a *Apache) Addrs() []string { return []string{a.addr} }

// LogDir is where the partitions' logs are.
func (a *Apache) LogDir() string { return filepath.Join(a.cfg.Dir, logDir) }

// Stop ends the process cleanly, or kills it when ctx is done.
func (a *Apache) Stop(ctx context.Context) error {
	gone := a.signal(syscall.SIGTERM)
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		a.Kill()
		return ctx.Err()
	}
}

// PID is the process's ID.
func (a *Apache) PID() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.cmd.Process.Pid
}

// Kill kills the process.
func (a *Apache) Kill() { <-a.signal(syscall.SIGKILL) }

// Pause stops the process with SIGSTOP: connections stay open and nothing responds until Resume. On a busy machine its
// threads stop one after another, and until the last one has, it may still respond: that is waited for.
func (a *Apache) Pause() {
	a.signal(syscall.SIGSTOP)
	for end := time.Now().Add(stopTimeout); !a.stopped() && time.Now().Before(end); {
		<-time.After(time.Millisecond)
	}
}

// stopTimeout bounds how long the threads of a process may take to stop.
const stopTimeout = 5 * time.Second

// stopped reports whether every thread of the process has stopped.
func (a *Apache) stopped() bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", a.PID()))
	for _, thread := range threads {
		// "pid (name) state …": the name may have anything in it.
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has ended
		}
		if _, rest, ok := strings.Cut(string(stat[max(0, bytes.LastIndexByte(stat, ')')):]), ") "); !ok || !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return err == nil && len(threads) > 0
}

// Resume continues a paused process.
func (a *Apache) Resume() { a.signal(syscall.SIGCONT) }

// Restart kills the process and starts it again on the same data and port.
func (a *Apache) Restart(ctx context.Context) error {
	a.Kill()
	return a.start(ctx)
}

func (a *Apache) signal(s syscall.Signal) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.cmd.Process.Signal(s) // the process may have ended: gone says so
	return a.gone
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
