package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lienstream/lienstream/topics/freeport"
)

// process is one run of the binary.
type process struct {
	name string
	cmd  *exec.Cmd
	out  *os.File
	done chan struct{}
	err  error // from Wait; read after done
}

// start runs the binary; its output goes to a file in the bench's directory.
func start(cfg config, name string, args ...string) (*process, error) {
	return startCommand(cfg, name, cfg.binary, args...)
}

func startCommand(cfg config, name, command string, args ...string) (*process, error) {
	out, err := os.OpenFile(fmt.Sprintf("%s/%s.log", cfg.dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, out: out, done: make(chan struct{}), cmd: exec.Command(command, args...)} //nolint:noctx // it lives until it is ended
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = cfg.repository, out, out
	secret := cfg.dir + "/cursor-secret"
	if err := os.WriteFile(secret, []byte("the same on all nodes of a bench"), 0o600); err != nil {
		return nil, err
	}
	p.cmd.Env = append(os.Environ(), "LIENSTREAM_LOG_FORMAT=json", "LIENSTREAM_CURSOR_SECRET_FILE="+secret)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it does not outlive the bench
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		_ = out.Close()
		close(p.done)
	}()
	return p, nil
}

// kill ends it as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.done
}

// stop is Ctrl-C.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.done:
		return p.err
	case <-time.After(10 * time.Second):
		p.kill()
		return fmt.Errorf("%s did not stop", p.name)
	}
}

// status is a field of the process's /proc status, in bytes.
func (p *process) status(field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("no %s", field)
}

// clockTick is the unit of processor time in /proc.
const clockTick = 10 * time.Millisecond

// cpu is the processor time used so far.
func (p *process) cpu() (time.Duration, error) { return cpuOf(p.cmd.Process.Pid) }

func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // from the third on
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat: %s", text)
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * clockTick, errors.Join(err1, err2)
}

// address is a free address on loopback.
func address() string {
	addr, err := freeport.Address()
	if err != nil {
		panic(err) // no loopback
	}
	return addr
}

// until polls until check is satisfied.
func until(ctx context.Context, p *process, check func(context.Context) error) error {
	return untilIn(ctx, p, patience, check)
}

func untilIn(ctx context.Context, p *process, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for began := time.Now(); ; {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w: see %s", p.name, p.err, p.out.Name())
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s: %w", p.name, limit, err)
		case <-time.After(max(5*time.Millisecond, time.Since(began)/200)): // a question costs the process a millisecond
		}
	}
}

// client asks services.
var client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}

func fetch(ctx context.Context, url string) (body []byte, header http.Header, status int, err error) {
	return exchange(ctx, url, "")
}

// exchange posts JSON; without a body it is fetch.
func exchange(ctx context.Context, url, posted string) (body []byte, header http.Header, status int, err error) {
	method := http.MethodGet
	if posted != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(posted))
	if err != nil {
		return nil, nil, 0, err
	}
	if posted != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(res.Body)
	return body, res.Header, res.StatusCode, err
}

// indexed reports whether the indexer is healthy at a block or beyond.
func indexed(addr string, block uint64) func(context.Context) error {
	return func(ctx context.Context) error {
		body, _, status, err := fetch(ctx, "http://"+addr+"/health/indexer")
		if err != nil {
			return err
		}
		var health struct {
			OK           bool   `json:"ok"`
			IndexedBlock uint64 `json:"indexedBlock"`
		}
		if err := json.Unmarshal(body, &health); err != nil {
			return fmt.Errorf("health: %d %s", status, body)
		}
		if !health.OK || health.IndexedBlock < block {
			return fmt.Errorf("health: %d %s, block %d wanted", status, body, block)
		}
		return nil
	}
}
