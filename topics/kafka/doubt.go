package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/lienstream/lienstream/topics/pause"
)

// Doubt is for how long what brokers say of a topic's end is doubted where it would stop something for good: one that was frozen
// and goes on believes for a moment that it leads, and says what it last knew. Apache Kafka was seen to do so for 406 ms.
const Doubt = 10 * time.Second

// doubts is how many times it is asked again.
const doubts = 10

// Doubted asks until the answer is something other than an error, or has been that for some time.
func Doubted(ctx context.Context, doubt time.Duration, doubtful error, ask func() error) error {
	for began := time.Now(); ; {
		err := ask()
		if !errors.Is(err, doubtful) || time.Since(began) >= doubt {
			return err
		}
		if err := pause.For(ctx, doubt/doubts); err != nil {
			return err
		}
	}
}
