package notifier

import (
	"net/http"
	"time"
)

// ServeHTTP serves without a port.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.api.ServeHTTP(w, r) }

// Fresh is what is said of a message's time.
func (s *Service) Fresh(unix int64, now time.Time) error { return s.fresh(unix, now) }
