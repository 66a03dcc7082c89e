package roles

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lienstream/lienstream/cmd/lienstream/memory"
	"github.com/lienstream/lienstream/ingest/rpc"
)

// stuckRole has a part that fails, and one that does not end.
type stuckRole struct {
	fails error
	ends  chan struct{}
}

func (stuckRole) Name() string                 { return "stuck" }
func (stuckRole) Help() string                 { return "" }
func (stuckRole) Flags(*Flags)                 {}
func (stuckRole) Check(*Process) error         { return nil }
func (stuckRole) Memory(*Process) uint64       { return 0 }
func (stuckRole) Least(*Process) memory.Budget { return 0 }
func (r stuckRole) Start(_ context.Context, p *Process) error {
	p.Group.Go(func() error { <-r.ends; return nil })
	return r.fails
}

// What fails ends the process even if another part of it does not stop.
func TestAFailureEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := System()
		env.Stdout, env.Stderr, env.Shared = new(bytes.Buffer), new(bytes.Buffer), true
		r := stuckRole{errors.New("the disk is gone"), make(chan struct{})}
		defer close(r.ends)
		g := newProgram()
		g.flags()
		err := g.run(t.Context(), env, r)
		if !errors.Is(err, r.fails) || !strings.Contains(err.Error(), "still running 4.5s") {
			t.Errorf("%v", err)
		}
	})
}

// HTTP and WebSocket of one node are one of the ingester's nodes, and so one vote.
func TestNodesOfTheIngester(t *testing.T) {
	p := processOf(t)
	p.Servers.RPC = []string{"ws://node.example:8545", "http://node.example:8545", "https://other.example"}
	r := newIngestRole()
	r.rate = 5
	got := r.config(p).RPC.Endpoints
	if want := []rpc.Endpoint{{URL: "http://node.example:8545", WS: "ws://node.example:8545", Rate: 5}, {URL: "https://other.example", Rate: 5}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
