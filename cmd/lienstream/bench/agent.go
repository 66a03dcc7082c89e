package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// agent measures the agent API over the embedded chain, which mines ten blocks a second in the same process: requests
// per second over 16 connections, and requests to the chain per answer. The limits are counted in Redis, which costs
// more than the rest of a read where it is embedded.
func (b *bench) agent(ctx context.Context, w *world) error {
	addr := address()
	p, err := w.freshOn([]string{"--chain-addr=" + address(), "--block-time=100ms", "--services=indexer,agent", "--agent-addr=" + addr, "--agent-requests=100000000", "--agent-prepares=100000000"})
	if err != nil {
		return err
	}
	defer p.kill()
	var deals []listing
	if err := until(ctx, p.process, func(ctx context.Context) error {
		deals, err = listings(ctx, addr)
		if err == nil && len(deals) < connections {
			err = fmt.Errorf("%d listings", len(deals))
		}
		return err
	}); err != nil {
		return err
	}
	for _, route := range []struct {
		path   string
		of     func(listing) request
		p99    float64 // most, in ms
		rounds float64 // most
	}{
		{"/v1/capabilities", func(listing) request { return request{path: "/v1/capabilities"} }, 10, 0},
		{"/v1/listings", func(listing) request { return request{path: "/v1/listings"} }, 10, 0},
		{"/v1/deals/{dealId}", func(d listing) request { return request{path: "/v1/deals/" + d.ID, or: moved} }, 10, 0},
		{"/v1/portfolio/{wallet}", func(d listing) request { return request{path: "/v1/portfolio/" + d.Borrower} }, 10, 0},
		{"/v1/transactions/prepare", listing.prepare, 60, 3},
	} {
		var all load
		asked, err := chainRequests(ctx, p.ops, route.path)
		if err != nil {
			return err
		}
		for range turns {
			if deals, err = listings(ctx, addr); err != nil { // the chain goes on
				return err
			}
			requests := make([]request, len(deals))
			for i, d := range deals {
				requests[i] = route.of(d)
			}
			part, err := press(ctx, addr, requests)
			if err != nil {
				return err
			}
			all.merge(part)
		}
		askedNow, err := chainRequests(ctx, p.ops, route.path)
		if err != nil {
			return err
		}
		name := "agent API, " + w.kind + ", " + route.path
		b.add(name, "answers/s", all.rate(), 0, goal{})
		b.add(name+", p99", "ms", quantile(all.latencies, 0.99), 0, goal{most: route.p99})
		b.add(name+", requests to the chain", "an answer", (askedNow-asked)/float64(len(all.latencies)), 0, goal{most: route.rounds})
	}
	return nil
}

// moved are answers that a moving chain explains: the index is ahead of the service's head, or the deal has changed.
var moved = []int{http.StatusNotFound, http.StatusConflict}

// listing is a deal that requests are made of.
type listing struct {
	ID, Borrower, TermsHash string
	ordinal                 int
}

// prepare asks for a transaction that the node has to simulate: a cancellation by the borrower, or an approval.
func (d listing) prepare() request {
	r := request{path: "/v1/transactions/prepare", or: moved}
	if d.ordinal%2 == 0 {
		r.body = fmt.Sprintf(`{"action":"approveUsdg","chainId":%d,"wallet":%q,"amount":"1000000"}`, chainID, d.Borrower)
	} else {
		r.body = fmt.Sprintf(`{"action":"cancel","chainId":%d,"wallet":%q,"dealId":%q,"termsHash":%q}`, chainID, d.Borrower, d.ID, d.TermsHash)
	}
	return r
}

func listings(ctx context.Context, addr string) ([]listing, error) {
	body, _, status, err := fetch(ctx, "http://"+addr+"/v1/listings?limit=100")
	if err != nil {
		return nil, err
	}
	var page struct{ Items []listing }
	if err := json.Unmarshal(body, &page); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("listings: %d %s", status, body)
	}
	for i := range page.Items {
		page.Items[i].ordinal = i
	}
	return page.Items, nil
}

// chainRequests is how many requests to the chain's nodes the answers of a route took.
func chainRequests(ctx context.Context, ops, route string) (float64, error) {
	text, _, _, err := fetch(ctx, "http://"+ops+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, fmt.Sprintf("lienstream_agent_chain_requests_sum{route=%q} ", route)); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, nil
}
