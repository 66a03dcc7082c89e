package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// valuation measures the valuation service over the embedded chain, which mines ten blocks a second in the same process:
// over 16 connections, in turns with the bare handler, and how many answers wait for a read of the chain. Flags
// allow any price, because a block takes half an hour of the chain's time: only paused tokens are refused.
func (b *bench) valuation(ctx context.Context, w *world) error {
	addr := address()
	p, err := w.freshOn([]string{
		"--chain-addr=" + address(), "--block-time=100ms", "--services=indexer,valuation", "--valuation-addr=" + addr,
		"--valuation-min-history=0s", "--valuation-min-depth=0", "--valuation-max-deviation=1000000",
	})
	if err != nil {
		return err
	}
	defer p.kill()
	for _, route := range []struct {
		name string
		list string // on the indexer
		path func(valued) string
	}{
		{"/assets/:token/value", "/assets?limit=200", func(v valued) string { return "/assets/" + v.Token + "/value" }},
		{"/deals/:id/valuation", "/listings?limit=100", func(v valued) string { return "/deals/" + v.ID + "/valuation" }},
	} {
		var paths []string
		if err := until(ctx, p.process, func(ctx context.Context) (err error) {
			paths, err = answered(ctx, p.addr, route.list, addr, route.path)
			return err
		}); err != nil {
			return err
		}
		if err := b.valued(ctx, p, addr, route.name, paths); err != nil {
			return err
		}
	}
	return nil
}

// valued is an item of the indexer that the service has a path for.
type valued struct{ ID, Token string }

// answered are the paths that the service answers with 200.
func answered(ctx context.Context, indexer, list, addr string, path func(valued) string) (paths []string, err error) {
	body, _, status, err := fetch(ctx, "http://"+indexer+list)
	if err != nil {
		return nil, err
	}
	var page struct{ Items, Assets []valued }
	if err := json.Unmarshal(body, &page); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %s", list, status, body)
	}
	for _, v := range append(page.Items, page.Assets...) {
		if _, _, status, err := fetch(ctx, "http://"+addr+path(v)); err != nil {
			return nil, err
		} else if status == http.StatusOK {
			paths = append(paths, path(v))
		}
	}
	if least := min(connections, len(page.Items)); len(paths) == 0 || len(paths) < least {
		return nil, fmt.Errorf("%d of %s are valued", len(paths), list)
	}
	return paths, nil
}

// valued measures paths of the service.
func (b *bench) valued(ctx context.Context, p *pipeline, addr, name string, paths []string) error {
	bare, err := startBare(ctx, b.config, addr, gets(paths))
	if err != nil {
		return err
	}
	defer bare.close()
	requests := gets(paths)
	for i := range requests {
		requests[i].or = []int{http.StatusServiceUnavailable} // a token may be paused meanwhile
	}
	if _, err := press(ctx, addr, requests); err != nil { // warm
		return err
	}
	readsBefore, refusedBefore, err := waits(ctx, p.ops)
	if err != nil {
		return err
	}
	var us, them load
	for range turns {
		part, err := press(ctx, addr, requests)
		if err != nil {
			return err
		}
		us.merge(part)
		if part, err = press(ctx, bare.addr, gets(paths)); err != nil {
			return err
		}
		them.merge(part)
	}
	reads, refused, err := waits(ctx, p.ops)
	if err != nil {
		return err
	}
	b.note("%s: %d answers, %.0f of them refusals, %.0f reads of the chain waited for", name, len(us.latencies), refused-refusedBefore, reads-readsBefore)
	name = "valuation, GET " + name + " under 10 blocks/s"
	b.add(name, "requests/s", us.rate(), them.rate(), goal{ratio: 0.5})
	b.add(name+", p99", "ms", quantile(us.latencies, 0.99), quantile(them.latencies, 0.99), goal{most: 5})
	b.add(name+", reads of the chain", "an answer", (reads-readsBefore)/float64(max(len(us.latencies), 1)), 0, goal{})
	return nil
}

// waits is how many reads of the chain requests waited for, and how many prices were refused.
func waits(ctx context.Context, ops string) (reads, refused float64, err error) {
	text, _, _, err := fetch(ctx, "http://"+ops+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		var to *float64
		switch {
		case name == "lienstream_valuation_fee_reads_total":
			to = &reads
		case strings.HasPrefix(name, "lienstream_valuation_refusals_total{"):
			to = &refused
		default:
			continue
		}
		n, parseErr := strconv.ParseFloat(value, 64)
		err = errors.Join(err, parseErr)
		*to += n
	}
	return reads, refused, err
}
