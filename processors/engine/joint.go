package engine

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lienstream/lienstream/processors/engine/read"
	"github.com/lienstream/lienstream/topics/kafka"
)

// joint gives the tasks of a node that are at the tip one transaction a block in place of one each. Most of what a block costs
// a broker, and the time until it is committed, are transactions.
//
// Such a transaction has a transactional ID of the node, so taking the partition's own ID does not fence it. A partition's
// progress therefore names the ID, and whoever takes over fences that one too (fenceWriter).
//
// Invariants:
//  1. a task takes part only after a commit under its partition's ID whose progress names the joint ID. After one whose
//     progress does not, it takes part no more;
//  2. a joint ID is used by one process, until its first error, and never again. So it is fenced for good;
//  3. a task takes over with its partition's ID first, so of several one is left. What names a joint ID is written under
//     the partition's ID, so nobody names another one after that;
//  4. a partition's own ID is in use all the while, so brokers do not forget who took it last (renewal);
//  5. a task hands over all that it commits at once. So one that fails or stalls before holds up nobody.
type joint struct {
	n      *Node
	ctx    context.Context //nolint:containedctx // transactions are of all tasks and outlive each
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	now     *jointTx // nil: none
	started time.Time

	fencing chan struct{}   // held while fenced is used
	fenced  map[string]bool // joint IDs that this node has fenced
}

const (
	// jointPause is the least time between two joint IDs.
	jointPause = time.Second
	// maxFenced bounds the joint IDs that a node remembers having fenced.
	maxFenced = 64
	// releasePatience is how long a node waits for an owner that is alive to leave its node's transactions. It does so with
	// its next commit, and would otherwise be fenced together with all tasks of that node.
	releasePatience = time.Second
	leaveLook       = 250 * time.Millisecond // how often an idle owner looks whether it has to
	// renewal is how long a partition's own ID may be unused. Brokers forget one by default after a week, and a commit under an ID
	// that they forgot fails.
	renewal = time.Hour
	// contested is how long a task that was fenced takes no part: while two nodes contend for one partition, each would else
	// fence all tasks of the other again and again.
	contested = 10 * time.Second
)

func newJoint(n *Node) *joint {
	ctx, cancel := context.WithCancel(context.Background())
	return &joint{n: n, ctx: ctx, cancel: cancel, fencing: make(chan struct{}, 1), fenced: map[string]bool{}}
}

func (j *joint) close() {
	j.cancel()
	j.mu.Lock()
	if j.now != nil {
		j.now.fail(context.Canceled)
	}
	j.mu.Unlock()
	j.wg.Wait()
}

// current is what tasks may take part in; nil: there is none yet.
func (j *joint) current() *jointTx {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.now != nil && j.now.alive() {
		return j.now
	}
	if time.Since(j.started) >= jointPause && j.ctx.Err() == nil {
		j.started = time.Now()
		j.wg.Go(j.start)
	}
	return nil
}

// start takes a new joint ID.
func (j *joint) start() {
	id := j.n.transactionalID(-1) + "." + j.n.cfg.Instance + "." + strconv.FormatInt(time.Now().UnixNano(), 36)
	tx, err := j.n.transactor(id)
	if err != nil {
		j.n.logger.Warn("cannot create the producer of joint transactions", zap.Error(err))
		return
	}
	if err := tx.Init(j.ctx); err != nil {
		tx.Close()
		if j.ctx.Err() == nil {
			j.n.logger.Warn("cannot take over the joint transactional ID", zap.Error(err))
		}
		return
	}
	x := &jointTx{j: j, id: id, tx: tx, members: map[*seat]read.Point{}, preparing: map[*seat]bool{}}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ctx.Err() != nil || j.now != nil && j.now.alive() {
		tx.Close()
		return
	}
	j.now = x
}

// fence makes sure that nothing is committed under a joint ID any more.
func (j *joint) fence(ctx context.Context, id string) error {
	select {
	case j.fencing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-j.fencing }()
	if j.fenced[id] {
		return nil
	}
	tx, err := j.n.transactor(id)
	if err != nil {
		return err
	}
	defer tx.Close()
	if err := tx.Init(ctx); err != nil {
		return err
	}
	if len(j.fenced) >= maxFenced {
		clear(j.fenced)
	}
	j.fenced[id] = true
	return nil
}

// ours reports whether a joint ID is the one in use here. A task of ours that starts again has left it, and what it left
// there is decided first: it must not follow the task's open record.
func (j *joint) ours(ctx context.Context, id string) (bool, error) {
	j.mu.Lock()
	x := j.now
	j.mu.Unlock()
	if x == nil || x.id != id {
		return false, nil
	}
	err := x.decided(ctx)
	return err == nil && x.alive(), err
}

// silence makes sure that nothing of a partition of ours follows under a joint ID.
func (j *joint) silence(ctx context.Context, id string) error {
	if ours, err := j.ours(ctx, id); ours || err != nil {
		return err
	}
	return j.fence(ctx, id)
}

// fenceWriter silences the joint ID that a partition was written under, and returns how its changelog ends. The caller holds the
// partition's ID. A transaction that is undecided hides what comes after it, so another ID may show up once it is decided.
//
// A broker that leads no longer, and does not know it yet, says how the changelog ended before: restorer.finish finds that out.
//
// So who needs to know how it ends says up to which offset it certainly goes; -1: nobody does.
func (n *Node) fenceWriter(ctx context.Context, partition int32, least int64) (last life, err error) {
	if n.commands != nil {
		return last, nil // they have no joint transactions
	}
	silent := ""
	err = kafka.Doubted(ctx, n.cfg.doubt, errOldEnd, func() (err error) {
		for {
			last, err = n.lastLife(ctx, partition)
			writer := last.progress.Writer
			switch ended := writer == "" || writer == silent; {
			case err != nil:
				return err
			case ended && last.end < least:
				return fmt.Errorf("%w: its last known record is at offset %d, the last that the brokers report at %d", errOldEnd, least, last.end)
			case ended:
				return nil
			}
			if err := n.joint.silence(ctx, writer); err != nil {
				return err
			}
			silent = writer
		}
	})
	return last, err
}

// awaitRelease waits, for a moment, until an owner that is alive has left its node's transactions: its progress then names
// none. What comes meanwhile s applies; nil: a rebuild, which applies nothing.
func (n *Node) awaitRelease(ctx context.Context, partition int32, s *restorer) error {
	if n.commands != nil || !n.live.owned(n.cfg.Instance, partition) {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, releasePatience)
	defer cancel()
	if s != nil {
		return s.awaitRelease(ctx, short)
	}
	return n.readRelease(ctx, short, partition)
}

// readRelease reads the changelog until progress names no joint ID, or short is done.
func (n *Node) readRelease(ctx, short context.Context, partition int32) error {
	last, err := n.lastLife(ctx, partition)
	if err != nil || last.progress.Writer == "" {
		return err
	}
	read, err := n.consumer.Open(n.changelog, partition, last.end+1)
	if err != nil {
		return err
	}
	defer read.Close()
	for {
		records, err := read.Poll(short, nil)
		if short.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		for _, rec := range records {
			if _, payload, err := unseal(rec.Key, rec.Value); err == nil && bytes.Equal(rec.Key, keyProgress) {
				if p, _, err := decodeProgress(payload); err == nil && p.Writer == "" {
					return nil
				}
			}
		}
	}
}
