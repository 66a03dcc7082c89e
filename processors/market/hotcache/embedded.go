package hotcache

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Embedded starts a Redis in this process, in memory, on a free local port, and returns its URL and a function
// that stops it. It is correct but slow with many listings, because it sorts an order for every page.
func Embedded() (url string, closer func(), err error) {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		return "", nil, fmt.Errorf("start embedded redis: %w", err)
	}
	return "redis://" + m.Addr(), m.Close, nil
}
