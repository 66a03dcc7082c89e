package broker

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/topics/freeport"
)

// clusterSettings let a cluster go on without a node in seconds, as docs/operations.md asks of real brokers.
var clusterSettings = map[string]string{
	"default.replication.factor":   "3",
	"min.insync.replicas":          "2",
	"broker.session.timeout.ms":    "3000", // a broker that is silent for so long leads nothing any more
	"broker.heartbeat.interval.ms": "500",
	"request.timeout.ms":           "1000", // a broker that asks one which is silent asks again elsewhere

	// Where the silent one is the controller as well, a new one is elected first, and gives every broker a new session.
	"controller.quorum.fetch.timeout.ms": "1000",
}

// StartApacheCluster starts a cluster of so many nodes, each broker and controller, with directories of their own
// below cfg.Dir, and waits until all of them are registered or ctx is done. After an error none of them runs.
func StartApacheCluster(ctx context.Context, cfg ApacheConfig, size int) ([]*Apache, error) {
	ports, err := freeport.Find(2 * size)
	if err != nil {
		return nil, err
	}
	settings := maps.Clone(clusterSettings)
	maps.Copy(settings, cfg.Settings)
	cfg.Settings, cfg.Controllers = settings, nil
	for _, port := range ports[size:] {
		cfg.Controllers = append(cfg.Controllers, loopback(port))
	}
	nodes := make([]*Apache, size)
	g, ctx := errgroup.WithContext(ctx)
	for i := range nodes {
		node := cfg
		node.ID, node.Port, node.Dir = i+1, ports[i], filepath.Join(cfg.Dir, fmt.Sprint(i+1))
		g.Go(func() (err error) {
			nodes[i], err = StartApache(ctx, node)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		for _, a := range nodes {
			if a != nil {
				a.Kill()
			}
		}
		return nil, fmt.Errorf("cluster of %d nodes: %w", size, err)
	}
	return nodes, nil
}
