package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/broker/brokertest"
	"github.com/lienstream/lienstream/topics/polltest"
)

// While a member of the group takes no part in a rebalance, that goes on for all. Whoever waits for its share for long says that it is
// not ready, and is when the group answers.
func TestNotReadyWhileTheGroupDoesNotAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a broker")
	}
	emptyPools()
	defer emptyPools()
	synctest.Test(t, func(t *testing.T) {
		e := newPipedEnv(t, 2, 1)
		group := "t.1." + topics.AppMarket
		check(t, brokertest.Stick(t.Context(), e.kafka.Brokers, e.kafka.Dial, group, e.cat.TasksTopic()))
		c := newChain(t, e.kafka, e.cat, 8)
		n := e.start(e.config("a", vfs.NewMem()))
		ready := func() error {
			c.add(1)
			return n.Ready(time.Minute)
		}
		polltest.Within(t, 2*time.Minute, func() error {
			if err := ready(); err == nil || !strings.Contains(err.Error(), "the consumer group has not said for") {
				return errors.Join(errors.New("the node waits for the group, and does not say so"), err)
			}
			return nil
		})
		if marks := n.Watermarks(); len(marks) > 0 {
			t.Errorf("the silent member has the partitions, and this node %v", marks)
		}
		stuck, err := brokertest.Regroup(t.Context(), e.kafka.Brokers, e.kafka.Dial)
		if check(t, err); stuck != 1 {
			t.Errorf("%d groups were stuck", stuck)
		}
		polltest.Within(t, 2*time.Minute, func() error {
			if err := ready(); err != nil || len(n.Watermarks()) < 2 {
				return fmt.Errorf("the node holds %v, and its readiness is %w", n.Watermarks(), err)
			}
			return nil
		})
	})
}
