package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/contracts"
)

// agentPort is the agent API's, agentPath begins what is asked of it, and preparePath what it is to prepare: the request's body
// is behind a space.
const (
	agentPort   = ":83"
	agentPath   = "/agent"
	preparePath = agentPath + "/v1/transactions/prepare "
)

// agentArgs are the flags of the agent API: the chain's clock is not ours, and all clients are one.
func agentArgs(host string) []string {
	return []string{"--agent-addr=" + host + agentPort, "--agent-max-lag=0", "--agent-max-valuation=0", "--agent-requests=1000000", "--agent-prepares=1000000"}
}

// sent is a transaction of the recording, which the agent API is asked to prepare as of the block before.
type sent struct {
	path      string // of the question
	data      string // the calldata
	transfers string // what it moved, as its logs say
}

// sentIn is the first transaction of a block, if the agent API can prepare it: those behind it begin elsewhere than the block
// before ended.
func sentIn(vault abi.ABI, rec *recording, b *block) *sent {
	if len(b.txs) == 0 {
		return nil
	}
	var tx types.Transaction
	var receipts []*types.Receipt
	if tx.UnmarshalBinary(b.txs[0]) != nil || tx.To() == nil || *tx.To() != rec.deployment.DealVault || json.Unmarshal(b.receipts, &receipts) != nil || receipts[0].Status != types.ReceiptStatusSuccessful {
		return nil
	}
	from, err := types.Sender(types.LatestSignerForChainID(tx.ChainId()), &tx)
	if err != nil || len(tx.Data()) < 4 {
		return nil
	}
	method, err := vault.MethodById(tx.Data()[:4])
	if err != nil {
		return nil
	}
	given, err := method.Inputs.Unpack(tx.Data()[4:])
	if err != nil {
		return nil
	}
	asks := askedFor(method.Name, given)
	if asks == nil {
		return nil
	}
	asks["chainId"], asks["wallet"] = rec.deployment.ChainID, from
	body, err := json.Marshal(asks)
	if err != nil {
		return nil
	}
	return &sent{path: preparePath + string(body), data: hexutil.Encode(tx.Data()), transfers: transfersOf(receipts[0].Logs)}
}

// askedFor is what a call of the vault is asked for by; nil: it cannot be.
func askedFor(method string, given []any) map[string]any {
	most := new(big.Int).Sub(new(big.Int).Lsh(common.Big1, 128), common.Big1).String()
	text := func(i int) string { return fmt.Sprint(given[i]) }
	hash := func(i int) common.Hash { return given[i].([32]byte) }
	switch method {
	case "list":
		if given[0].(uint8) != uint8(contracts.KindERC20) {
			return nil
		}
		return map[string]any{"action": "list", "token": given[1], "amount": text(2), "cap": text(3), "minPrice": text(4), "term": given[5], "listingExpiry": given[6]}
	case "fund":
		return map[string]any{"action": "fund", "dealId": text(0), "termsHash": hash(1), "maxPrice": most}
	case "cancel", "claim":
		return map[string]any{"action": method, "dealId": text(0), "termsHash": hash(1)}
	case "reclaim":
		return map[string]any{"action": "reclaim", "dealId": text(0), "termsHash": hash(1), "spendLimit": most}
	case "bid":
		return map[string]any{"action": "placeBid", "dealId": text(0), "price": text(1), "expiry": given[2], "termsHash": hash(3), "spendLimit": text(1)}
	case "withdraw":
		return map[string]any{"action": "withdrawCredit", "token": given[0]}
	}
	return nil
}

var transferred = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

// transfersOf are the transfers of tokens in logs, in one line each.
func transfersOf(logs []*types.Log) string {
	var b strings.Builder
	for _, l := range logs {
		if len(l.Topics) == 3 && l.Topics[0] == transferred {
			fmt.Fprintln(&b, lower(l.Address), lower(common.BytesToAddress(l.Topics[1][:])), lower(common.BytesToAddress(l.Topics[2][:])), new(big.Int).SetBytes(l.Data))
		}
	}
	return b.String()
}

// sentOf are the transactions of a recording that the agent API can prepare, by the block that each was sent after.
func sentOf(rec *recording) (map[common.Hash][]*sent, error) {
	vault, err := contracts.ABI("DealVault")
	if err != nil {
		return nil, err
	}
	all := map[common.Hash][]*sent{}
	for _, b := range rec.blocks {
		if s := sentIn(vault, rec, b); s != nil { // two blocks may follow one
			all[b.header.ParentHash] = append(all[b.header.ParentHash], s)
		}
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b *sent) int { return strings.Compare(a.path, b.path) })
	}
	return all, nil
}

// agentAnswer is what is judged of an answer of the agent API, and the block that it names. When it was given is not, nor are the
// warnings: of a valuation that came too late, say.
func agentAnswer(body string) (judged string, number, hash string) {
	var answer map[string]any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if d.Decode(&answer) != nil {
		return body, "", ""
	}
	evidence, is := answer["evidence"].(map[string]any)
	if !is {
		return body, "", ""
	}
	delete(evidence, "observedAt")
	delete(answer, "warnings")
	number, hash = fmt.Sprint(evidence["blockNumber"]), fmt.Sprint(evidence["blockHash"])
	if at, indexed := answer["checkpoint"].(map[string]any); indexed && at["blockHash"] != hash {
		return body, "", "" // of two blocks
	}
	text, _ := json.Marshal(answer) // it was decoded from JSON
	return string(text), number, hash
}

func lower(a common.Address) string { return strings.ToLower(a.Hex()) }

// agentAnswers are what the agent API of a node answers as of the head. Of what it refuses it names no block.
func (s *system) agentAnswers(ctx context.Context, host string, paths []string, into map[string]reply) error {
	head := s.chain.head().Hex()
	for _, path := range append([]string{agentPath + "/v1/capabilities"}, paths...) {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			r, err := s.get(ctx, host, path)
			if err != nil {
				return err
			}
			if r.status == http.StatusOK && r.hash == head {
				if answer, _, _, _, indexed := blocksOf(r.body); indexed {
					into[indexOf+path] = reply{r.status, r.number, head, fromIndex(answer)}
				}
				if !strings.HasPrefix(path, preparePath) {
					r.body = digest(r.body)
				}
				into[path] = r
				break
			}
			if r.status >= http.StatusBadRequest && r.status < http.StatusInternalServerError && into[agentPath+"/v1/capabilities"].hash == head {
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s: %d as of %s: %.200s", path, r.status, r.number, r.body)
			}
		}
	}
	return nil
}

// agentPaths are questions to the agent API, with one answer each as of a block.
func (e *entities) agentPaths() []string {
	all := []string{agentPath + "/v1/capabilities", agentPath + "/v1/assets", agentPath + "/v1/listings?limit=100"}
	for i, id := range e.deals {
		if i%4 == 1 {
			all = append(all, agentPath+"/v1/deals/"+id)
		}
	}
	for i, w := range e.wallets {
		if i%4 == 1 {
			all = append(all, agentPath+"/v1/portfolio/"+w)
		}
	}
	return all
}
