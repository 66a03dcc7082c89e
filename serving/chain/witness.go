package chain

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Node is the node that answered; zero: none did.
type Node struct{ host string }

// AnsweredBy is the node that gave the last answer under a context of WithOtherNode, or one derived from it.
func AnsweredBy(ctx context.Context) Node {
	if last, ok := ctx.Value(lastAnswerKey{}).(*atomic.Pointer[endpoint]); ok && last.Load() != nil {
		return Node{last.Load().host}
	}
	return Node{}
}

type allowedKey struct{}

// allowedNodes says which nodes may be asked.
type allowedNodes struct {
	only string // empty: any
	not  []string
}

func (m *allowedNodes) excludes(e *endpoint) bool {
	return m != nil && (m.only != "" && e.host != m.only || slices.Contains(m.not, e.host))
}

func allowed(ctx context.Context) *allowedNodes {
	m, _ := ctx.Value(allowedKey{}).(*allowedNodes)
	return m
}

// Only is a context under which only this node is asked, once.
func Only(ctx context.Context, n Node) context.Context {
	return WithOtherNode(context.WithValue(ctx, allowedKey{}, &allowedNodes{only: n.host}))
}

// Without is a context under which nodes other than these are asked, each once.
func Without(ctx context.Context, nodes ...Node) context.Context {
	m := &allowedNodes{}
	for _, n := range nodes {
		m.not = append(m.not, n.host)
	}
	return WithOtherNode(context.WithValue(ctx, allowedKey{}, m))
}

// Others reports whether a node other than these responds.
func (c *Client) Others(nodes ...Node) bool {
	return slices.ContainsFunc(c.responding(), func(host string) bool { return !slices.Contains(nodes, Node{host}) })
}

type methodKey struct{}

// Preferring is a context under which nodes that have a method come before those that lack it, for any request.
func Preferring(ctx context.Context, method string) context.Context {
	return context.WithValue(ctx, methodKey{}, method)
}

// lacks reports whether an endpoint lacks a method of the requests, or the preferred one.
func lacks(ctx context.Context, e *endpoint, requests []*Request) bool {
	now := time.Now()
	preferred, ok := ctx.Value(methodKey{}).(string)
	return ok && !e.has(preferred, now) || slices.ContainsFunc(requests, func(r *Request) bool { return !e.has(r.Method, now) })
}

// Dissents notes, within Agreed, that these nodes contradict the result on which two others agree.
func (c *Client) Dissents(ctx context.Context, nodes ...Node) {
	r, ok := ctx.Value(roundKey{}).(*agreementRound)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range c.endpoints {
		if slices.Contains(nodes, Node{e.host}) {
			r.against = append(r.against, e)
		}
	}
}
