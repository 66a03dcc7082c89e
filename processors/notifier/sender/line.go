package sender

import "golang.org/x/time/rate"

// Rates are the maximum messages per second by channel, of one process.
type Rates struct{ Email, Telegram, Push float64 }

// DefaultRates are rates that common providers accept; 30 is Telegram's own limit.
func DefaultRates() Rates { return Rates{Email: 10, Telegram: 30, Push: 100} }

// Line is a channel and the rate at which it may be used.
type Line struct {
	Channel Channel
	Rate    *rate.Limiter
}

// NewLine limits a channel to a number of messages per second, with bursts of a tenth of that.
func NewLine(channel Channel, perSecond float64) *Line {
	return &Line{Channel: channel, Rate: rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond/10)))}
}
