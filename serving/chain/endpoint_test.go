package chain

import (
	"testing"
	"time"
)

// A method is not taken for missing for good, by whomever was told so once.
func TestAMissingMethodIsTriedAgain(t *testing.T) {
	now := time.Now()
	e := &endpoint{lacks: map[string]time.Time{}}
	e.noteLack("eth_call", now)
	for after, has := range map[time.Duration]bool{0: false, lackFor - 1: false, lackFor: true} {
		if e.has("eth_call", now.Add(after)) != has || !e.has("eth_getCode", now.Add(after)) {
			t.Errorf("%s later it has the method: %t", after, !has)
		}
	}
}
