package kafka_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lienstream/lienstream/topics/broker"
	"github.com/lienstream/lienstream/topics/kafka"
)

// A transactor that is stopped during a commit does not ask who holds the transactional ID: a coordinator that does not answer
// would delay the stop.
func TestWhoEndsAsksNothing(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.BrokerConfigs(broker.Settings()))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	b := newTestBroker(t, cluster.ListenAddrs(), "ends")
	tx := b.transactor(t, "a")
	b.commit(t, tx, "1")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var asked atomic.Int32
	cluster.ControlKey(kmsg.EndTxn.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		end()
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp, nil, true
	})
	cluster.ControlKey(kmsg.DescribeTransactions.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked.Add(1)
		return nil, nil, false
	})
	begin(t, tx)
	b.produce(t, tx, "2")
	if err := tx.Commit(ctx); !errors.Is(err, kafka.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("it asked %d times who holds the ID", n)
	}
}
