package brokertest

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Layout is who leads and coordinates what.
type Layout struct {
	Addrs   map[int32]string
	Leaders map[int32]int32 // of the partitions of a topic
	Others  map[int32]bool  // brokers that lead or coordinate what was asked for besides
}

// LayoutOf asks a cluster who leads each partition of a topic, and which brokers lead the first of another one or coordinate a group
// and transactional IDs.
func LayoutOf(ctx context.Context, brokers []string, dial func(ctx context.Context, network, addr string) (net.Conn, error),
	topic, other, group string, ids ...string,
) (Layout, error) {
	c := Layout{map[int32]string{}, map[int32]int32{}, map[int32]bool{}}
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.Dialer(dial))
	if err != nil {
		return c, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	meta, err := adm.Metadata(ctx)
	if err != nil {
		return c, fmt.Errorf("fetch metadata: %w", err)
	}
	for _, b := range meta.Brokers {
		c.Addrs[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	for p, d := range meta.Topics[topic].Partitions {
		c.Leaders[p] = d.Leader
	}
	c.Others[meta.Topics[other].Partitions[0].Leader] = true
	for _, found := range []kadm.FindCoordinatorResponses{adm.FindGroupCoordinators(ctx, group), adm.FindTxnCoordinators(ctx, ids...)} {
		for _, d := range found {
			if d.Err != nil {
				return c, fmt.Errorf("find the coordinator of %s: %w", d.Name, d.Err)
			}
			c.Others[d.NodeID] = true
		}
	}
	return c, nil
}
