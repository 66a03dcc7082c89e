package indexer

// Addr is the address that the service listens on; it waits for Run.
func (x *Indexer) Addr() string { return x.server.Addr() }
