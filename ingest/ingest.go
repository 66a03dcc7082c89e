// Package ingest writes one chain into the raw topic: every log of the market, in order, verified, once, with a
// barrier after each block and a revert for each reorganised block. It must not decode more of a log than the
// entity that it belongs to, and stores nothing itself: its position is read from the topic.
//
//	follow/      what to fetch, what links, what to publish and to revert: pure
//	rpc/         queries the nodes, and verifies every response
//	session.go   one run until an error: passes responses to follow and executes its commands with rpc
//	probe.go     reads token multipliers and pauses, which no event reports
//	tokens.go    which tokens to probe, and when to probe them again; registry.go reads which are registered
//	join.go      which meme tokens are followed, and from which block on
//	ledger.go    a token's history → who holds how much of it; history.go reads it
//	origin.go    the transaction that a token began with, where a ledger came without it
//	publish.go   batches → Kafka transactions
//	readback.go  the topic → where to continue
//	mark.go      the filter with which the topic was filled; filter.go compares it with the deployment
//	unchecked.go contracts that may have logs which the topic lacks
//	stuck.go     which block does not come in, and since when
//	standby.go   waits until the active ingester is silent
package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/follow"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/topics"
	"github.com/lienstream/lienstream/topics/kafka"
	"github.com/lienstream/lienstream/topics/pause"
)

// Ingester ingests one chain.
type Ingester struct {
	cfg         Config
	log         *zap.Logger
	reg         prometheus.Registerer
	metrics     *metrics
	client      *rpc.Client
	decoder     *contracts.Decoder
	needProbe   map[common.Hash]bool
	assetSet    common.Hash
	ours        map[common.Address]bool // contracts of the deployment whose logs are all wanted
	tokenTopics map[common.Hash]bool    // wanted of any address
	tokens      tokens
	topic       string
	txID        string
	status      board
	tx          atomic.Pointer[kafka.Transactor] // of the current session; tests kill it
	cutLoggedAt time.Time                        // when a log with cut data was last reported

	unchecked atomic.Pointer[unchecked] // nil: none
}

// New makes an ingester. It opens no connection.
func New(cfg Config, log *zap.Logger, reg prometheus.Registerer) (*Ingester, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	log = log.With(zap.Uint64("chain", cfg.Deployment.ChainID))
	client, err := rpc.New(cfg.rpc(), log, reg)
	if err != nil {
		return nil, fmt.Errorf("ingest: %w", err)
	}
	catalogue := topics.Catalogue{Prefix: cfg.Kafka.Prefix, ChainID: cfg.Deployment.ChainID, Partitions: cfg.Partitions}
	in := &Ingester{
		cfg: cfg, log: log, reg: reg, client: client,
		decoder:   contracts.NewDecoder(cfg.Deployment),
		needProbe: needProbe(), assetSet: assetSet(),
		ours: map[common.Address]bool{}, tokenTopics: map[common.Hash]bool{},
		topic: catalogue.Raw(),
		txID:  fmt.Sprintf("%s.%d.ingest", cfg.Kafka.Prefix, cfg.Deployment.ChainID),
	}
	for _, a := range in.decoder.Addresses() {
		in.ours[a] = true
	}
	for _, t := range contracts.TokenTopics() {
		in.tokenTopics[t] = true
	}
	in.metrics = newMetrics(reg, &in.status)
	return in, nil
}

// Run ingests until ctx is done, which is no error. It returns the errors after which it must not continue:
// kafka.ErrFenced if another ingester took over and Standby is off, follow.ErrDeepReorg and
// follow.ErrChainShort if the chain contradicts the topic, ErrTorn if the topic has lost records,
// ErrOtherFilter if the topic belongs to another deployment, and ErrStartBlock if the deployment starts too late.
// Any other error is logged, and a new session starts from what the topic holds.
//
//	rpc.Client.Run: subscriptions ──heads──┐
//	                                       ▼
//	     poll ──head, finalized──►  session (follow.Machine) ──batch──► publisher ──► Kafka
//	                                  │ fetch        ▲   ▲                  │
//	                                  ▼              │   └────committed─────┘
//	                              fetchers ──blocks──┘
func (in *Ingester) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return in.client.Run(ctx) })
	g.Go(func() error {
		err := in.run(ctx)
		if ctx.Err() != nil && !final(err) {
			return nil
		}
		return err
	})
	return g.Wait()
}

// Bounds of the pause between two sessions. While a broker is away several may fail, and the next one should begin soon
// after the other brokers can do without it.
const (
	minWait = 100 * time.Millisecond
	maxWait = time.Second
)

func (in *Ingester) run(ctx context.Context) error {
	wait := minWait
	for standby, first := in.cfg.Standby, true; ; first = false {
		if standby {
			if err := in.standBy(ctx, first); err != nil {
				return err
			}
		}
		began := time.Now()
		err := in.session(ctx)
		in.status.stopped(err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, kafka.ErrFenced) && in.cfg.Standby:
			in.log.Warn("another ingester took over, standing by", zap.Error(err))
			standby = true
			continue
		case errors.Is(err, kafka.ErrFenced):
			return fmt.Errorf("another ingester runs on topic %s; stop one of them, or run both with --ingest-standby: %w", in.topic, err)
		case in.cfg.Rewind && errors.Is(err, follow.ErrDeepReorg): // the next session reverts what was final
		case final(err) && !in.alone(err):
			return err
		}
		standby = false
		if time.Since(began) > time.Minute {
			wait = minWait
		}
		in.metrics.sessions.Inc()
		in.log.Warn("session ended, resuming from the end of the topic", zap.Duration("wait", wait), zap.Error(err))
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, maxWait)
	}
}

// alone reports whether an error contradicts a finality that only one of several endpoints claimed. That is no reason
// to stop: the others may be right. With FinalityWindow there are no claims.
func (in *Ingester) alone(err error) bool {
	return in.cfg.Finality == FinalityTag && (errors.Is(err, follow.ErrDeepReorg) || errors.Is(err, follow.ErrChainShort)) && !in.client.Backed(in.status.get().Finalized)
}

// final reports whether an error would come back after every restart.
func final(err error) bool {
	return errors.Is(err, kafka.ErrFenced) || errors.Is(err, follow.ErrDeepReorg) || errors.Is(err, follow.ErrChainShort) ||
		errors.Is(err, ErrTorn) || errors.Is(err, ErrUnrelated) || errors.Is(err, ErrOtherFilter) || errors.Is(err, ErrStartBlock) || errors.Is(err, topics.ErrLaterSchema)
}
