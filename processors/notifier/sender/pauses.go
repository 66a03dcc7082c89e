package sender

import (
	"context"
	"sync"
	"time"

	"github.com/lienstream/lienstream/topics/pause"
)

// pauses are the pauses that Telegram asks for when it gets too many messages. It does not say whether a pause is for
// one chat or for the bot. It counts for the chat, unless several chats in succession are refused.
type pauses struct {
	mu    sync.Mutex
	chats map[int64]time.Time // until when a chat is left alone
	row   map[int64]bool      // chats that were refused since the last accepted message
	all   time.Time           // until when all chats are
}

const (
	maxPaused = 4096        // chats that are remembered: beyond that, all are dropped
	botRow    = 3           // chats refused in succession from which a pause counts for the bot
	maxPause  = time.Minute // maximum pause of all chats: anyone can have chats that are refused
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

// taken notes that a message was accepted.
func (p *pauses) taken() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row = nil
}

// left is the remaining pause of a chat.
func (p *pauses) left(chat int64, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chats[chat].Sub(now)
}

// wait waits until the pause of all chats is over.
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
