package system

import (
	"errors"
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/lienstream/lienstream/ingest/devchain"
	"github.com/lienstream/lienstream/topics/polltest"
)

// partitions of the raw topic, by default.
const partitions = 16

// standbyGap is well below the session timeout of 3 s, after which the partitions have another owner: where reads fail
// for less, the standby answered. The test logs how long they failed.
const standbyGap = time.Second

// follows waits until a node is at the chain's head in every partition, as owner or as standby.
func (f *fleet) follows(t *testing.T, name string, within time.Duration) {
	t.Helper()
	head, err := f.w.judge.eth.BlockNumber(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	polltest.Within(t, within, func() error {
		sum, err := f.nodes[name].metric(t.Context(), "lienstream_processors_block_number", ofMarket)
		if want := float64(partitions * head); err == nil && sum < want {
			err = fmt.Errorf("%s is at blocks that add up to %v, all at the head would be %v", name, sum, want)
		}
		return err
	})
}

// TestTwoOfEach starts two ingesters and two processor nodes together, and then loses, freezes and thaws
// the owners of partitions, and lets a third node come and go under load. Reads go on; no answer is wrong
// or torn; nothing is in a topic twice.
func TestTwoOfEach(t *testing.T) {
	w := newWorld(t, "devchain", "embedded", devchain.ScenarioConfig{Seed: seed(t), TxsPerBlock: 4, TimePerBlock: 6 * time.Hour})
	w.onKafka(t)
	w.onRedis(t)
	w.mine(t.Context(), t, 150)
	f := newFleet(t, w)
	f.join(t, "ingest-0", "ingest", "--ingest-standby")
	f.join(t, "ingest-1", "ingest", "--ingest-standby")
	f.processors(t, "a", "--session-timeout=3s")
	f.processors(t, "b", "--session-timeout=3s")
	f.serving(t)
	f.serves(t)
	paths := []string{"/deals?limit=200", "/listings?limit=200&sort=cost", "/deals/7"}

	f.whole(t)

	t.Run("owner killed", func(t *testing.T) {
		f.balanced(t, "a", "b")
		read := readOn(t, f.api, paths...)
		stop := w.load(t, 100*time.Millisecond)
		read.sees(t, 3) // the last of them may be shown, and not yet committed
		read.during("a is killed")
		f.nodes["a"].kill()
		f.nodes["b"].holds(t, time.Minute, "owner", partitions)
		read.during("b owns all, a begins again")
		f.restart("a")
		f.balanced(t, "a", "b")
		read.during("a owns its share")
		stop()
		settle(t, f.api, w.judge, time.Minute)
		if gap := read.stop(t, "owner killed"); gap > standbyGap {
			t.Errorf("an answer took %v with a standby at hand", gap)
		}
		read.judge(t.Context(), t, w.judge)
		f.whole(t)
	})

	t.Run("owner frozen, then a zombie", func(t *testing.T) {
		f.balanced(t, "a", "b")
		read := readOn(t, f.api, paths...)
		frozen, err := w.judge.eth.BlockNumber(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stop := w.load(t, 50*time.Millisecond)
		read.during("a is frozen")
		f.nodes["a"].pause()
		f.nodes["b"].holds(t, time.Minute, "owner", partitions)
		read.during("b owns all")
		stop()
		w.mine(t.Context(), t, 10)
		settle(t, f.api, w.judge, time.Minute)
		read.mark()
		read.during("a wakes up")
		f.nodes["a"].resume() // it believes that it owns what b has taken over
		w.pass(t, time.Second)
		f.balanced(t, "a", "b")
		settle(t, f.api, w.judge, time.Minute)
		if lowest := read.lowestBlock(); lowest <= frozen {
			t.Errorf("after the zombie woke, an answer was as of block %d: it was frozen at %d", lowest, frozen)
		}
		if gap := read.stop(t, "owner frozen"); gap > standbyGap {
			t.Errorf("an answer took %v with a standby at hand", gap)
		}
		read.judge(t.Context(), t, w.judge)
		f.whole(t)
	})

	t.Run("a third joins and leaves", func(t *testing.T) {
		f.balanced(t, "a", "b")
		read := readOn(t, f.api, paths...)
		stop := w.load(t, 100*time.Millisecond)
		read.during("c joins")
		f.processors(t, "c", "--session-timeout=3s")
		f.balanced(t, "a", "b", "c")
		read.during("c leaves")
		f.nodes["c"].interrupt(t)
		f.balanced(t, "a", "b")
		stop()
		settle(t, f.api, w.judge, time.Minute)
		if gap := read.stop(t, "third node"); gap > standbyGap {
			t.Errorf("an answer took %v while partitions moved", gap)
		}
		read.judge(t.Context(), t, w.judge)
		f.whole(t)
	})

	t.Run("status", func(t *testing.T) {
		f.balanced(t, "a", "b")
		polltest.Within(t, 30*time.Second, func() error { // a node tells every second what it holds
			table, err := try(t, append([]string{"status", "--log-level=error"}, w.servers...)...)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, table)
			}
			for _, line := range []string{
				`(?m)^ +HEAD +PUBLISHED +FINALIZED +AGE\ningest +\d+ +\d+ +\d+ `,
				`(?m)^0 +[ab] +running +\d+ +\d+ +[ab] at \d+$`,
				`(?m)^15 +[ab] +running +\d+ +\d+ +[ab] at \d+$`,
				`(?m)^application support\nPARTITION +OWNER +STATE +COMMAND +STANDBYS\n0 +[ab] +running +\d+ +[ab] at \d+$`,
			} {
				if !regexp.MustCompile(line).MatchString(table) {
					return fmt.Errorf("status has no line %s:\n%s", line, table)
				}
			}
			return nil
		})
	})

	t.Run("ingester killed", func(t *testing.T) {
		active, other := f.ingesters(t)
		active.kill()
		w.mine(t.Context(), t, 10)
		began := time.Now()
		settle(t, f.api, w.judge, time.Minute)
		t.Logf("%s took over from %s within %v", other.name, active.name, time.Since(began).Round(time.Millisecond))
		f.restart(active.name)
		f.whole(t)
	})

	t.Run("ingester frozen, then a zombie", func(t *testing.T) {
		active, other := f.ingesters(t)
		active.pause()
		w.mine(t.Context(), t, 10)
		settle(t, f.api, w.judge, time.Minute)
		active.resume() // fenced: it stands by
		w.pass(t, time.Second)
		f.whole(t)
		if now, _ := f.ingesters(t); now != other {
			t.Errorf("%s ingests, %s had taken over", now.name, other.name)
		}
	})

	topicsEqualChain(t, w)
	for _, name := range []string{"serving", "a", "b", "ingest-0", "ingest-1"} {
		f.nodes[name].interrupt(t)
	}
}

// serves waits until all answers are as of the chain's head.
func (f *fleet) serves(t *testing.T) { t.Helper(); settle(t, f.api, f.w.judge, time.Minute) }

// balanced waits until each of these nodes owns its share, and every partition has a standby.
func (f *fleet) balanced(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		f.nodes[name].holds(t, 30*time.Second, "owner", partitions/len(names))
	}
	if len(names) == 2 {
		for _, name := range names {
			f.nodes[name].holds(t, 30*time.Second, "standby", partitions/2)
			f.follows(t, name, 30*time.Second)
		}
	}
}

// ingesters returns the active ingester and the standby.
func (f *fleet) ingesters(t *testing.T) (active, standby *member) {
	t.Helper()
	polltest.Within(t, 30*time.Second, func() error {
		active, standby = nil, nil
		for _, name := range []string{"ingest-0", "ingest-1"} {
			m := f.nodes[name]
			waits, err := m.metric(t.Context(), "lienstream_ingest_standby")
			switch {
			case err != nil:
				return err
			case waits == 1:
				standby = m
			default:
				active = m
			}
		}
		if active == nil || standby == nil {
			return errors.New("not one that ingests and one that stands by")
		}
		return nil
	})
	return active, standby
}
