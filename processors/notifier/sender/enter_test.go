package sender

import (
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/notifier"
)

// Requests to confirm an address, which anyone can cause, hold a quarter of a channel, and so take a quarter of its
// rate while alerts of deals wait for it; with news they hold half.
func TestWhatEverybodyAsksForHoldsAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Catalogue.Partitions = 1
		s, err := New(cfg, nil, nil, nil, map[notifier.Channel]*Line{notifier.Email: NewLine(nil, 10)}, zap.NewNop(), prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range []struct {
			stage notifier.Stage
			most  int
		}{{notifier.ToConfirm, cfg.Parallel / 4}, {notifier.EpochOpen, cfg.Parallel / 2}, {notifier.Before1, cfg.Parallel}} {
			for range 2 * cfg.Parallel {
				go s.enter(t.Context(), &due{to: notifier.Address{Channel: notifier.Email, Stage: of.stage}})
			}
			synctest.Wait()
			if held := len(s.slots[notifier.Email]); held != of.most {
				t.Errorf("%s: %d run, want %d", of.stage, held, of.most)
			}
		}
	})
}
