package sender

import (
	"context"
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics/pause"
)

// pauses are what Telegram asks for when it gets too much: for how long, but not whether of one chat or of all that the bot sends.
// It is of the chat, unless it refuses several of them, one after the other.
type pauses struct {
	mu    sync.Mutex
	chats map[int64]time.Time // until when a chat is left alone
	row   map[int64]bool      // those that were refused since a message was taken
	all   time.Time           // until when all are
}

const (
	maxPaused = 4096        // chats that are remembered: beyond that, all are forgotten
	botRow    = 3           // chats that are refused one after the other, by which it is of the bot
	maxPause  = time.Minute // of all chats: strangers may have as many that are refused
)

// refused notes that a chat was refused.
func (p *pauses) refused(chat int64, after time.Duration, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.chats == nil || len(p.chats) >= maxPaused {
		p.chats = map[int64]time.Time{}
	}
	p.chats[chat] = now.Add(min(after, maxAfter))
	if p.row == nil {
		p.row = map[int64]bool{}
	}
	if p.row[chat] = true; len(p.row) >= botRow {
		p.all, p.row = now.Add(min(after, maxPause)), nil
	}
}

// taken notes that a message was taken.
func (p *pauses) taken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row = nil
}

// left is for how long a chat is to be left alone.
func (p *pauses) left(chat int64, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chats[chat].Sub(now)
}

// wait waits until messages may be sent at all.
func (p *pauses) wait(ctx context.Context) error {
	for {
		p.mu.Lock()
		left := time.Until(p.all)
		p.mu.Unlock()
		if left <= 0 {
			return ctx.Err()
		}
		if err := pause.For(ctx, left); err != nil {
			return err
		}
	}
}
