// Package system tests the whole program from outside: real processes of the binary on real servers,
// judged by the chain alone. It must not reach into a stage.
package system

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lienstream/lienstream/topics/freeport"
)

var binaryPath string

// TestMain builds the program once.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "lienstream-system-")
	if err == nil {
		binaryPath = filepath.Join(dir, "lienstream")
		err = build(binaryPath)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the binary; with CI the one that ships, by the Dockerfile's own line. Variables are of Go's own environment.
func build(path string, variables ...string) error {
	line := "go build -o /lienstream ./cmd/lienstream"
	if os.Getenv("CI") != "" {
		dockerfile, err := os.ReadFile("../../../docker/Dockerfile")
		if err != nil {
			return err
		}
		run := regexp.MustCompile(`(?m)^RUN (.*go build .*)$`).FindSubmatch(dockerfile)
		if run == nil {
			return errors.New("the Dockerfile has no line that builds it")
		}
		line = string(run[1])
	}
	cmd := exec.Command("sh", "-c", strings.Replace(line, "/lienstream", path, 1))
	cmd.Dir, cmd.Stderr, cmd.Env = "../../..", os.Stderr, append(os.Environ(), variables...)
	return cmd.Run()
}

// process is one run of the binary.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // what Wait said; read after done

	mu  sync.Mutex
	out bytes.Buffer
}

// start runs the binary with arguments; the test's end kills it.
func start(t *testing.T, name string, args ...string) *process {
	t.Helper()
	return startBuild(t, binaryPath, name, args...)
}

// startBuild runs a binary.
func startBuild(t *testing.T, binary, name string, args ...string) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Dir = repository(t)
	p.cmd.Env = append(os.Environ(), "LIENSTREAM_CURSOR_SECRET_FILE="+cursorSecret(t))
	read, write := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = write, write
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.mu.Lock()
			p.out.Write(lines.Bytes())
			p.out.WriteByte('\n')
			p.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, read) // a line that is too long must not hold up the process
	}()
	go func() {
		p.err = p.cmd.Wait()
		_ = write.Close()
		<-collected // its last line may be what is asked for
		close(p.done)
	}()
	t.Cleanup(func() { p.report(t) })
	return p
}

// report ends the process. Of a test that failed it shows what the last lines say; `go test -artifacts` keeps them all.
func (p *process) report(t *testing.T) {
	t.Helper()
	well := p.ended() && p.err == nil
	if !p.ended() {
		p.kill()
	}
	if !t.Failed() || well {
		return
	}
	t.Logf("output of %s:\n%s", p.name, tail(p.output(), 1500))
	name := fmt.Sprintf("%s-%d.log", strings.ReplaceAll(p.name, " ", "-"), p.cmd.Process.Pid)
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name), []byte(p.output()), 0o600); err != nil {
		t.Log(err)
	}
}

// cursorSecret is a file with the secret that all serving nodes of a test share.
func cursorSecret(t *testing.T) string {
	t.Helper()
	file := filepath.Join(filepath.Dir(binaryPath), "cursor-secret")
	if err := os.WriteFile(file, []byte("the same on all nodes of a test"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// ended reports whether it runs no longer.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends it as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// interrupt is Ctrl-C, after which the process must end well within 5 s; it reports how long that took.
func (p *process) interrupt(t *testing.T) time.Duration {
	t.Helper()
	const within = 5 * time.Second
	began := time.Now()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatalf("interrupt %s: %v", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(within):
		t.Fatalf("%s still runs %v after an interrupt", p.name, within)
	}
	if p.err != nil {
		t.Fatalf("%s ended with %v after an interrupt", p.name, p.err)
	}
	return time.Since(began)
}

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

func repository(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// address is a free address on loopback.
func address(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// api is a client of an indexer.
type api struct {
	base   string
	client *http.Client
}

func newAPI(addr string) *api {
	return &api{base: "http://" + addr, client: &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 32},
	}}
}

// answer is a response and the block that it is true as of.
type answer struct {
	Status int
	Block  string // hash
	Number string
	Body   object
}

func (a *api) get(ctx context.Context, path string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.base+path, nil)
	if err != nil {
		return answer{}, err
	}
	res, err := a.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	out := answer{Status: res.StatusCode, Block: res.Header.Get("x-indexed-block-hash"), Number: res.Header.Get("x-indexed-block")}
	d := json.NewDecoder(res.Body)
	d.UseNumber()
	if err := d.Decode(&out.Body); err != nil {
		return out, fmt.Errorf("GET %s: %d: %w", path, res.StatusCode, err)
	}
	return out, nil
}

var errMoved = errors.New("the head moved between two pages")

// list reads every page of a list, all as of the block with the given hash, else errMoved.
func (a *api) list(ctx context.Context, path, key, block string) ([]object, error) {
	var all []object
	cursor := ""
	for {
		page := path
		if cursor != "" {
			page += "&cursor=" + cursor
		}
		res, err := a.get(ctx, page)
		if err != nil {
			return nil, err
		}
		if res.Status != http.StatusOK {
			return nil, fmt.Errorf("GET %s: %d %v", page, res.Status, res.Body)
		}
		if res.Block != block {
			return nil, errMoved
		}
		for _, item := range res.Body[key].([]any) {
			all = append(all, item.(object))
		}
		next, ok := res.Body["nextCursor"].(string)
		if !ok {
			return all, nil
		}
		cursor = next
	}
}
