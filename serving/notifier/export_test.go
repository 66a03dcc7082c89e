package notifier

import (
	"net/http"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// ServeHTTP serves without a port.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.api.ServeHTTP(w, r) }

// Fresh is what is said of a message's time.
func (s *Service) Fresh(unix int64, now time.Time) error { return s.fresh(unix, now) }

// StartCode is what a chat sends after /start.
func StartCode(wallet common.Address, code string) string { return startCode(wallet, code) }
