package simulation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// Numbers of processors that a system is resized to.
const (
	fewestProcessors = 1
	mostProcessors   = 4
)

// readyWithin is a timeout of a process that was started.
const readyWithin = time.Minute

// roll starts all hosts of a kind again, each once the one before is ready: as Kubernetes does with a new version of
// them.
func (r *run) roll(ctx context.Context, f fault) error {
	for _, host := range f.hosts {
		if kindOf(host) != kindOf(f.host) || !r.takes(host, f.host) {
			continue
		}
		err := r.stop(host)
		time.Sleep(restart)
		err = errors.Join(err, r.start(ctx, host), r.comes(ctx, host))
		if r.leaves(host, f.host); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
	}
	return nil
}

// resize starts or stops processors, one after another, until there is a random number of them, and after a while as
// many as before. Where one thing at a time is broken, no partition loses its owner and its standby at once.
func (r *run) resize(ctx context.Context, f fault) error {
	rng := rand.New(rand.NewPCG(f.seed, 0))
	before := len(r.processors())
	fewest := fewestProcessors
	if r.opt.alone {
		fewest = before
	}
	to := fewest + rng.IntN(mostProcessors-fewest+1)
	if err := r.resizeTo(ctx, to, f.host); err != nil {
		return err
	}
	time.Sleep(f.lasts)
	return r.resizeTo(ctx, before, f.host)
}

func (r *run) resizeTo(ctx context.Context, n int, own string) error {
	for i, host := range names("processor", mostProcessors) {
		r.rmu.Lock()
		running := r.members[host]
		taken := running != (i < n) && r.take(host, own)
		r.rmu.Unlock()
		if !taken {
			continue
		}
		var err error
		if running {
			err = r.stop(host)
		} else {
			err = errors.Join(r.start(ctx, host), r.comes(ctx, host))
		}
		r.rmu.Lock()
		r.members[host] = !running
		r.rmu.Unlock()
		if r.leaves(host, own); err != nil {
			return fmt.Errorf("%s: %w", host, err)
		}
		time.Sleep(r.settling())
	}
	return nil
}

// settling is how long who resizes waits after each node.
func (r *run) settling() time.Duration {
	if r.opt.alone {
		return warmAfter
	}
	return restart
}

// restoredSteps of the chain come after a restore: a reorg among them needs what it reverts to.
const restoredSteps = 2 * reorgDepth

// restore has all processors end, lose their disks and begin again: what they know then is what the changelogs say, of which only the
// newest record of a key is left.
func (r *run) restore(ctx context.Context) error {
	r.rmu.Lock()
	r.spells = append(r.spells, spell{from: time.Now()})
	at := len(r.spells) - 1
	r.rmu.Unlock()
	r.story.tell("RESTORE", "all processors")
	hosts := r.processors()
	var errs []error
	for _, host := range hosts {
		errs = append(errs, r.stop(host))
		r.loseDisk(host)
	}
	others := append(names("ingester", r.opt.ingesters), names("serving", r.opt.servings)...)
	for end := time.Now().Add(restart); !r.compactOnce(others, r.compacted()) && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
	for _, host := range hosts {
		errs = append(errs, r.start(ctx, host))
	}
	for _, host := range hosts {
		errs = append(errs, r.comes(ctx, host))
	}
	r.rmu.Lock()
	r.spells[at].until = time.Now()
	r.rmu.Unlock()
	return errors.Join(errs...)
}

// processors are those that are to run.
func (r *run) processors() []string { return r.running(names("processor", mostProcessors)) }

// running are those of these hosts that are to run.
func (r *run) running(hosts []string) []string {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	return slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return !r.members[h] })
}

// takes says that something happens to a host that is to run, unless something does already; own is the caller's until its
// fault ends.
func (r *run) takes(host, own string) bool {
	r.rmu.Lock()
	defer r.rmu.Unlock()
	return r.members[host] && r.take(host, own)
}

// take is takes of any host, with rmu held.
func (r *run) take(host, own string) bool {
	if host != own && r.busy[host] {
		return false
	}
	r.busy[host] = true
	return true
}

// leaves says that nothing happens to a host any more, unless it is the caller's own.
func (r *run) leaves(host, own string) {
	if host == own {
		return
	}
	r.rmu.Lock()
	defer r.rmu.Unlock()
	r.busy[host], r.healed[host] = false, time.Now()
}

// comes waits until a process that was started is ready, once more where the embedded broker had its group stuck.
func (r *run) comes(ctx context.Context, host string) error {
	began := time.Now()
	err := r.ready(ctx, host, readyWithin)
	if err != nil && r.freed(ctx, began) {
		err = r.ready(ctx, host, readyWithin)
	}
	return err
}

// ready waits until a process says that it is.
func (r *run) ready(ctx context.Context, host string, within time.Duration) error {
	says := ""
	for end := time.Now().Add(within); ; time.Sleep(restart) {
		status, body, err := r.ops(ctx, r.client, host, "/readyz")
		if err == nil {
			says = fmt.Sprintf("%d %s: %s", status, http.StatusText(status), body)
			if status == http.StatusOK {
				return nil
			}
		}
		if time.Now().After(end) {
			return errors.Join(fmt.Errorf("not ready within %s: %s", within, says), err)
		}
	}
}

// ops asks a process at its ops port.
func (r *run) ops(ctx context.Context, client *http.Client, host, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+":9464"+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(res.Body)
	return res.StatusCode, body, errors.Join(err, res.Body.Close())
}
