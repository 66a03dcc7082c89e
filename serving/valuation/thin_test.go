package valuation

import (
	"bytes"
	"math/big"
	"testing"
)

// TestThinPoolsQuoteNothing: the price of a pool with hardly any liquidity is whoever's it is that moves it, for nothing, and holds
// it there for a quarter of an hour. No quote and no range follows one.
func TestThinPoolsQuoteNothing(t *testing.T) {
	w := newWorld(t)
	w.mine(1800)
	st := w.state()
	tkn, err := st.reference(w.dep.TKN)
	if err != nil {
		t.Fatal(err)
	}
	own := worth(st.byID(w.dep.PoolID).depthIn(w.dep.TKN), tkn.price)
	own.Add(own, big.NewInt(1e8)) // the pool that prices the token is a little deeper
	reinvest := "/quote/reinvest?amount=1000000000000000000&tickLower=-887220&tickUpper=887220&route="
	paths := []string{
		reinvest + "match&payAsset=" + w.dep.TKN.Hex(), reinvest + "zap", "/range/suggest?term=604800&pool=" + w.dep.PoolID.Hex(),
		"/quote/entry?eth=1000000000",
	}
	for _, as := range []struct {
		floor  uint64
		paths  []string
		status int
	}{{w.service.cfg.Reference.MinDepth, paths, 200}, {own.Uint64(), paths[:3], 503}, {1e18, paths[3:], 503}} {
		w.service.cfg.Reference.MinDepth = as.floor
		w.mine(1)
		for _, path := range as.paths {
			if status, body := w.ask(path); status != as.status || status == 503 && !bytes.Contains(body, []byte("too shallow")) {
				t.Errorf("with a floor of %d: %s: %d %s", as.floor, path, status, body)
			}
		}
	}
}
