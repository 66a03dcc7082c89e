package engine

import (
	"testing"

	"github.com/lienstream/lienstream/topics"
)

// A position that an earlier build wrote, which lacks where its progress was, is read, and an earlier build reads ours.
func TestPositionOfAnEarlierBuild(t *testing.T) {
	p := position{Generation: 2, Changelog: 20, Since: 15, Progress: progress{Input: 4, At: topics.BlockRef{Number: 7}, Incarnation: 10}}
	b := p.encode()
	former := b[:len(b)-4] // without the empty Writer, and without what comes after it
	former[0] = positionVersionLog
	got, err := decodePosition(former)
	if p.Since = 11; err != nil || got != p {
		t.Fatalf("%+v, %v", got, err)
	}
}
