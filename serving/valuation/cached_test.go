package valuation

import (
	"runtime"
	"testing"
	"weak"

	"github.com/lienstream/lienstream/serving/httpapi"
	"github.com/lienstream/lienstream/topics"
)

// TestCachedAnswersKeepNoState: what the cache keeps of an answer does not keep the state of its block in memory.
func TestCachedAnswersKeepNoState(t *testing.T) {
	s := newService(t)
	var res httpapi.Response
	of := func() weak.Pointer[state] {
		st := &state{at: topics.BlockRef{Number: 1}, cfg: &s.cfg}
		if err := s.answer(&res, st, entryBody{}); err != nil {
			t.Fatal(err)
		}
		return weak.Make(st)
	}()
	runtime.GC()
	if of.Value() != nil {
		t.Error("a cached answer keeps the state that it was computed from")
	}
	runtime.KeepAlive(&res)
}
