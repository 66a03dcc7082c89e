package query

// SetRoom sets how many bytes of windows a node reads for one answer.
func (c *Client) SetRoom(bytes int) { c.room = bytes }

// SetMany sets beyond how many open positions they are read page by page.
func (c *Client) SetMany(n int) { c.many = n }

// SetGathered sets how many positions a history gathers before it reads their contents.
func (c *Client) SetGathered(n int) { c.gathered = n }
