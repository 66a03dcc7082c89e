package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/contracts"
)

// views are what the contracts say as of a block: their view functions, and their logs up to it where no function says it, by
// go-ethereum's ABI package alone.
type views struct {
	before *views // as of the block before
	time   uint64
	there  map[common.Address]bool // contracts that are deployed

	deals, bids map[string]fields       // by ID
	open        map[string]int          // bids that can be accepted, by deal
	best        map[string]*big.Int     // price of the best of them
	credits     map[string]string       // by account and asset; none: zero
	drips       map[string]fields       // by ID
	curves      map[string][]curvePoint // of drips
	epochs      []fields                // the oldest first
	assets      map[string]fields       // by token
	stakes      map[string]fields       // by token ID
	positions   map[string]fields       // by token ID
	holders     map[string]string       // of positions
	inPositions map[string][2]position  // of each what is in it of both tokens, by token ID
	pools       map[common.Hash]poolView
	layer       layerView
	logged      logged
}

// fields are of an object of an answer, as requireFields prints them.
type fields = map[string]string

// none is how a null of an answer is printed.
const none = "<nil>"

// layerView is the state of the token layer that is not a list.
type layerView struct {
	staking fields // of the pool's summary
	rate    string // of emissions, in wei of sTKN a second
	supply  *big.Int
}

// viewer asks the contracts as of each block that is recorded.
type viewer struct {
	abis map[string]abi.ABI
	at   map[common.Hash]*views

	curves map[string][]curvePoint // of drips: they change when one is cut alone
	fixed  map[common.Address]fields
}

func newViewer() (*viewer, error) {
	v := &viewer{abis: map[string]abi.ABI{}, at: map[common.Hash]*views{}, curves: map[string][]curvePoint{}, fixed: map[common.Address]fields{}}
	for _, name := range []string{"DealVault", "AssetRegistry", "EpochController", "RewardDistributor", "LiquidityStaking", "Burner", "STKN", "StockToken"} {
		of, err := contracts.ABI(name)
		if err != nil {
			return nil, err
		}
		v.abis[name] = of
	}
	uniswap, err := contracts.UniswapArtifacts("../../../contracts/node_modules")
	for _, name := range []string{"PoolManager", "PositionManager", "StateView"} {
		v.abis[name] = uniswap[name].ABI
	}
	return v, err
}

// contractsOf are the addresses of what is asked, by the names of the ABIs.
func contractsOf(d contracts.Deployment) map[string]common.Address {
	return map[string]common.Address{
		"DealVault": d.DealVault, "AssetRegistry": d.AssetRegistry, "EpochController": d.EpochController, "RewardDistributor": d.RewardDistributor,
		"LiquidityStaking": d.LiquidityStaking, "Burner": d.Burner, "STKN": d.STKN, "PositionManager": d.PositionManager, "StateView": d.StateView,
	}
}

// viewCall is one call of a batch.
type viewCall struct {
	of, method string
	args       []any
	out        func(map[string]any) // results by their names; those of a single struct by its fields; "": of the only one

	token common.Address // zero: the deployment says where
	time  uint64         // zero: the block's
	may   bool           // refuse: nothing is the result
}

// asking asks as of one block.
type asking struct {
	*viewer
	*views
	client     *rpc.Client
	block      common.Hash
	deployment contracts.Deployment
}

// calls makes calls in batches.
func (a *asking) calls(ctx context.Context, asks []viewCall) error {
	addresses := contractsOf(a.deployment)
	for part := range slices.Chunk(asks, 500) {
		batch := make([]rpc.BatchElem, len(part))
		for i, c := range part {
			data, err := a.abis[c.of].Pack(c.method, c.args...)
			if err != nil {
				return fmt.Errorf("%s.%s%v: %w", c.of, c.method, c.args, err)
			}
			to := c.token
			if to == (common.Address{}) {
				to = addresses[c.of]
			}
			args := []any{map[string]any{"to": to, "data": hexutil.Bytes(data)}, map[string]any{"blockHash": a.block}}
			if c.time > 0 {
				args = append(args, map[string]any{}, map[string]any{"time": hexutil.Uint64(c.time)})
			}
			batch[i] = rpc.BatchElem{Method: "eth_call", Result: new(hexutil.Bytes), Args: args}
		}
		if err := a.client.BatchCallContext(ctx, batch); err != nil {
			return err
		}
		for i, c := range part {
			method := a.abis[c.of].Methods[c.method]
			values, err := method.Outputs.Unpack(*batch[i].Result.(*hexutil.Bytes))
			if batch[i].Error != nil {
				err = batch[i].Error
			}
			if err != nil && !c.may {
				return fmt.Errorf("%s.%s%v: %w", c.of, c.method, c.args, err)
			}
			if err == nil {
				c.out(resultsOf(method.Outputs, values))
			}
		}
	}
	return nil
}

// resultsOf are results by their names.
func resultsOf(outputs abi.Arguments, values []any) map[string]any {
	all := map[string]any{}
	for i, v := range values {
		if t := reflect.ValueOf(v); t.Kind() == reflect.Struct && len(values) == 1 {
			for f := range t.NumField() {
				all[t.Type().Field(f).Tag.Get("json")] = t.Field(f).Interface()
			}
			continue
		}
		all[outputs[i].Name] = v
	}
	return all
}

// printed is a result as answers have it.
func printed(v any) string {
	switch v := v.(type) {
	case common.Address:
		return lower(v)
	case [32]byte:
		return common.Hash(v).Hex()
	}
	return fmt.Sprint(v)
}

// only are some results in the fields of an answer that are named as they are.
func only(results map[string]any, names ...string) fields {
	f := fields{}
	for _, name := range names {
		f[name] = printed(results[name])
	}
	return f
}

// see implements recording.also.
func (v *viewer) see(ctx context.Context, c *rpc.Client, r *recording, h *types.Header) error {
	before := v.at[h.ParentHash]
	earlier := before
	if earlier == nil {
		earlier = &views{logged: logged{minted: new(big.Int)}}
	}
	at := &views{
		before: before, time: h.Time, there: cloned(earlier.there), deals: map[string]fields{}, bids: map[string]fields{}, open: map[string]int{}, best: map[string]*big.Int{},
		credits: map[string]string{}, drips: map[string]fields{}, curves: map[string][]curvePoint{}, assets: map[string]fields{}, stakes: map[string]fields{},
		positions: map[string]fields{}, holders: map[string]string{}, inPositions: map[string][2]position{}, pools: map[common.Hash]poolView{},
	}
	a := &asking{viewer: v, views: at, client: c, block: h.Hash(), deployment: r.deployment}
	v.at[a.block] = at
	var err error
	if at.logged, err = v.logs(earlier.logged, r, r.blocks[a.block]); err != nil {
		return err
	}
	for _, address := range contractsOf(r.deployment) {
		if at.there[address] {
			continue // it stays
		}
		var code hexutil.Bytes
		if err := c.CallContext(ctx, &code, "eth_getCode", address, map[string]any{"blockHash": a.block}); err != nil {
			return err
		}
		if len(code) > 0 {
			at.there[address] = true
		}
	}
	for _, ask := range []struct {
		of []common.Address
		as func(context.Context) error
	}{
		{[]common.Address{r.deployment.DealVault}, a.vault},
		{[]common.Address{r.deployment.AssetRegistry}, a.registry},
		{[]common.Address{r.deployment.RewardDistributor}, a.distributor},
		{[]common.Address{r.deployment.EpochController}, a.controller},
		{[]common.Address{r.deployment.StateView, r.deployment.PositionManager, r.deployment.AssetRegistry}, a.uniswap},
		{[]common.Address{r.deployment.LiquidityStaking, r.deployment.STKN}, a.staking},
	} {
		if slices.ContainsFunc(ask.of, func(at common.Address) bool { return !a.there[at] }) {
			continue // it is not there yet
		}
		if err := ask.as(ctx); err != nil {
			return err
		}
	}
	return nil
}

// object decodes an answer without loss.
func object(t *testing.T, body string) map[string]any {
	t.Helper()
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return o
}

// requireFields compares the fields of want alone.
func requireFields(t *testing.T, what string, got any, want fields) {
	t.Helper()
	o, _ := got.(map[string]any)
	for name, w := range want {
		if g := fmt.Sprint(o[name]); g != w {
			t.Errorf("%s: %s is %s, the contracts say %s", what, name, g, w)
		}
	}
}
