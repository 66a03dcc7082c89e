package chain

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Node is one that answered; zero: none did.
type Node struct{ host string }

// Who is the node that gave the last answer under a context of Apart or of what is made of it.
func Who(ctx context.Context) Node {
	if last, ok := ctx.Value(apartKey{}).(*atomic.Pointer[endpoint]); ok && last.Load() != nil {
		return Node{last.Load().host}
	}
	return Node{}
}

type amongKey struct{}

// among says which nodes may be asked.
type among struct {
	only string
	not  []string
}

func (m *among) leavesOut(e *endpoint) bool {
	return m != nil && (m.only != "" && e.host != m.only || slices.Contains(m.not, e.host))
}

func mayAsk(ctx context.Context) *among {
	m, _ := ctx.Value(amongKey{}).(*among)
	return m
}

// Only is a context under which a node alone is asked, and once.
func Only(ctx context.Context, n Node) context.Context {
	return Apart(context.WithValue(ctx, amongKey{}, &among{only: n.host}))
}

// Without is a context under which others than these nodes are asked, each once.
func Without(ctx context.Context, nodes ...Node) context.Context {
	m := &among{}
	for _, n := range nodes {
		m.not = append(m.not, n.host)
	}
	return Apart(context.WithValue(ctx, amongKey{}, m))
}

// Others reports whether another node than these responds.
func (c *Client) Others(nodes ...Node) bool {
	return slices.ContainsFunc(c.responding(), func(host string) bool { return !slices.Contains(nodes, Node{host}) })
}

type methodKey struct{}

// Preferring is a context under which nodes that have a method are asked before those that lack it, whatever they are asked.
func Preferring(ctx context.Context, method string) context.Context {
	return context.WithValue(ctx, methodKey{}, method)
}

// lacks reports whether an endpoint lacks a method that is asked for, or is preferred.
func lacks(ctx context.Context, e *endpoint, requests []*Request) bool {
	now := time.Now()
	preferred, ok := ctx.Value(methodKey{}).(string)
	return ok && !e.has(preferred, now) || slices.ContainsFunc(requests, func(r *Request) bool { return !e.has(r.Method, now) })
}

// Dissents notes that nodes say otherwise than what is found (Agreed), which two others say.
func (c *Client) Dissents(ctx context.Context, nodes ...Node) {
	r, ok := ctx.Value(roundKey{}).(*round)
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
