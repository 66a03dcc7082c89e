package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// answer is what the bare handler writes for a path.
type answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// bareHandler is a process with nothing but net/http that writes the same bytes as a service: the most that a
// handler in Go can serve. The process is this program, started again.
type bareHandler struct {
	addr string
	cmd  *exec.Cmd
}

// startBare asks the service for everything once and starts a handler that repeats the answers.
func startBare(ctx context.Context, cfg config, service string, requests []request) (*bareHandler, error) {
	answers := make(map[string]answer, len(requests))
	for _, r := range requests {
		if _, known := answers[r.path]; known {
			continue
		}
		body, header, status, err := exchange(ctx, "http://"+service+r.path, r.body)
		if err != nil {
			return nil, err
		}
		if !r.takes(status) {
			return nil, fmt.Errorf("%s: %d %s", r.path, status, body)
		}
		header.Del("Date") // net/http writes its own
		answers[r.path] = answer{status, header, body}
	}
	b, err := json.Marshal(answers)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(cfg.dir, "answers.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &bareHandler{addr: address()}
	h.cmd = exec.Command(self, "--bare="+file, "--bare-addr="+h.addr) //nolint:noctx // it lives until close; our own arguments
	h.cmd.Stderr = os.Stderr
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := h.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		if _, _, _, err = fetch(ctx, "http://"+h.addr+requests[0].path); err == nil {
			return h, nil
		}
		if time.Now().After(deadline) {
			h.close()
			return nil, fmt.Errorf("bare handler: %w", err)
		}
	}
}

func (h *bareHandler) close() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// serveBare runs the bare handler.
func serveBare(file, addr string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var answers map[string]answer
	if err := json.Unmarshal(b, &answers); err != nil {
		return err
	}
	server := &http.Server{Addr: addr, ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := answers[r.URL.RequestURI()]
		maps.Copy(w.Header(), a.Header)
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Body) // the client may be gone
	})}
	return server.ListenAndServe()
}
