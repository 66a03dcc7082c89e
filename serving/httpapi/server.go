package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// ErrNotServing: the server is not listening yet, or is draining.
var ErrNotServing = errors.New("not serving")

// Server serves a handler and drains requests when it stops.
type Server struct {
	cfg     Config
	handler http.Handler
	log     *zap.Logger

	serving   atomic.Bool
	checked   atomic.Bool // see ReadyOnce
	once      sync.Once
	listening chan struct{} // closed when addr is set or will never be
	addr      string
}

// NewServer returns a server. It does nothing before Run.
func NewServer(cfg Config, handler http.Handler, logger *zap.Logger) *Server {
	return &Server{cfg: cfg, handler: handler, log: logger, listening: make(chan struct{})}
}

// Addr is the listen address, as host:port. It waits until Run listens; it is empty if that failed.
func (s *Server) Addr() string {
	<-s.listening
	return s.addr
}

// Ready is nil while the server accepts requests. It is for load balancers.
func (s *Server) Ready() error {
	if !s.serving.Load() {
		return ErrNotServing
	}
	return nil
}

// ReadyOnce is Ready once check has succeeded, which is not asked again. It is for a check of something that all nodes
// share: if they followed it, all of them would be withdrawn together, with the other services of their processes. The
// answers say what is wrong.
func (s *Server) ReadyOnce(check func() error) error {
	if err := s.Ready(); err != nil || s.checked.Load() {
		return err
	}
	if err := check(); err != nil {
		return err
	}
	s.checked.Store(true)
	return nil
}

// Run listens and serves until ctx is done, then drains. It may be called once.
//
//	ctx ──► drain: not ready ─ DrainDelay ─► Shutdown (DrainTimeout) ─► Close
//	                                            │
//	accept ──► Serve ◄──────────────────────────┘
func (s *Server) Run(ctx context.Context) error {
	defer s.once.Do(func() { close(s.listening) })
	listen := s.cfg.Listener
	if listen == nil {
		listen = new(net.ListenConfig).Listen //nolint:forbidigo // the default
	}
	listener, err := listen(ctx, "tcp", s.cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: %w: another server has the port, or an outgoing connection unless the port is in net.ipv4.ip_local_reserved_ports", s.cfg.Listen, err)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.cfg.Listen, err)
	}
	s.addr = listener.Addr().String()
	s.serving.Store(true)
	s.once.Do(func() { close(s.listening) })
	s.log.Info("listening", zap.String("addr", s.addr))

	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: s.cfg.ReadHeaderTimeout,
		ReadTimeout:       s.cfg.ReadTimeout,
		WriteTimeout:      s.cfg.WriteTimeout,
		IdleTimeout:       s.cfg.IdleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeaderBytes,
		ErrorLog:          stdLogger(s.log),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(limitListener(netutil.LimitListener(listener, s.cfg.MaxConnections), &s.cfg.Client)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", s.addr, err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		s.drain(context.WithoutCancel(ctx), server)
		return nil
	})
	return group.Wait()
}

// drain uses its own context, because Run's is done.
func (s *Server) drain(ctx context.Context, server *http.Server) {
	s.serving.Store(false)
	server.SetKeepAlivesEnabled(false)
	if s.cfg.DrainDelay > 0 {
		<-time.After(s.cfg.DrainDelay) // load balancers notice that we are not ready; requests are still answered
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		s.log.Warn("shutdown interrupted requests", zap.Error(err))
		_ = server.Close()
	}
}
