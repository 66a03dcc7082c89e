package valuation

import (
	"context"
	"strings"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// sourceBody names the source of a price.
type sourceBody struct {
	Kind      string   `json:"kind"`
	Pools     []string `json:"pools"`
	AsOfBlock uint64   `json:"asOfBlock"`
}

func (s *state) source(pools []*pool) sourceBody {
	b := sourceBody{Kind: kindPool, Pools: []string{}, AsOfBlock: s.at.Number}
	for _, p := range pools {
		b.Pools = append(b.Pools, p.ID.Hex())
	}
	if len(pools) > 1 {
		b.Kind = kindTwoHop
	}
	return b
}

type fractionBody struct {
	Num string `json:"num"`
	Den string `json:"den"`
}

type assetBody struct {
	Token     string       `json:"token"`
	PriceUSDG string       `json:"priceUSDG"`
	PriceRaw  fractionBody `json:"priceRaw"`
	Source    sourceBody   `json:"source"`
	At        uint64       `json:"at"`
}

func lower(a common.Address) string { return strings.ToLower(a.Hex()) }

// tokenOf is the token in a path: an ERC-20 of the registry, or a currency of a pool. Position NFTs are not
// tokens.
func (s *state) tokenOf(p httpapi.Param) (common.Address, error) {
	token := *p.Address()
	a := s.assets[token]
	if (a == nil || a.Kind != contracts.KindERC20) && token != s.cfg.Deployment.USDG && s.pairs.others[token] == nil {
		return token, &httpapi.Error{Code: assetNotFound, Message: "neither the registry nor an allowed pool has the token " + lower(token)}
	}
	return token, nil
}

// token is the state that answers, and the token of the path.
func (s *Service) token(ctx context.Context, req *httpapi.Request, res *httpapi.Response) (st *state, token common.Address, err error) {
	param := req.Path("token")
	if param.Address(); req.Err() != nil {
		return nil, token, req.Err()
	}
	if st, err = s.state(ctx, res); err == nil {
		token, err = st.tokenOf(param)
	}
	return st, token, err
}

func (s *Service) assetValue(ctx context.Context, req *httpapi.Request, res *httpapi.Response) error {
	st, token, err := s.token(ctx, req, res)
	if err != nil {
		return err
	}
	q, err := st.reference(token)
	if err != nil {
		return s.refused(err)
	}
	return s.answer(res, st, assetBody{
		Token: lower(token), PriceUSDG: q.text(q.price),
		PriceRaw: fractionBody{q.price.Num.String(), q.price.Den.String()},
		Source:   st.source(q.pools()), At: st.at.Timestamp,
	})
}
