package query

// SetRoom sets how many bytes of windows a node reads for one answer.
func (c *Client) SetRoom(bytes int) { c.room = bytes }
