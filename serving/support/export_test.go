package support

// Addr is where it listens, once it does.
func (s *Service) Addr() string { return s.server.Addr() }
