package notify

import "net/http"

// ServeHTTP serves without a port.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.api.ServeHTTP(w, r) }
