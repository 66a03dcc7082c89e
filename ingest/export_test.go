package ingest

// Kill cuts the connections to Kafka at once, as if the process had died. Run continues with a new session,
// which knows only what the topic holds.
func (in *Ingester) Kill() {
	if tx := in.tx.Load(); tx != nil {
		tx.Kill()
	}
}
