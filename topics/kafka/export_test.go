package kafka

// Kill cuts every connection at once: the group finds out when the session times out.
func (m *Membership) Kill() {
	m.conns.kill()
	go m.Close()
}
