package rpc

import (
	"slices"
	"testing"

	"github.com/lienstream/lienstream/topics"
)

func TestNumbersOf(t *testing.T) {
	logs := make([]topics.Log, 4)
	for i, n := range []uint64{7, 7, 9, 12} {
		logs[i].Block.Number = n
	}
	for _, c := range []struct {
		first, last uint64
		logs        []topics.Log
		want        []uint64
	}{
		{5, 20, nil, []uint64{5, 20}},
		{5, 5, nil, []uint64{5}},
		{5, 20, logs, []uint64{5, 7, 9, 12, 20}},
		{7, 12, logs, []uint64{7, 9, 12}},
		{0, 0, logs, []uint64{7, 9, 12}},
	} {
		if got := numbersOf(c.first, c.last, c.logs); !slices.Equal(got, c.want) {
			t.Errorf("%d-%d: %v, want %v", c.first, c.last, got, c.want)
		}
	}
}
