package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"github.com/lienstream/lienstream/serving/chain"
	"github.com/lienstream/lienstream/serving/httpapi"
)

// Simulation is the effect of the transaction in the next block.
type Simulation struct {
	Status    string     `json:"status"` // SUCCESS: nothing else is ever answered
	Method    string     `json:"method"`
	GasUsed   string     `json:"gasUsed"`
	Transfers []Transfer `json:"transfers"` // null where the node cannot tell
}

// Transfer is a transfer of a token or ether.
type Transfer struct {
	Kind            string  `json:"kind"`  // NATIVE, ERC20 or ERC721
	Token           *string `json:"token"` // null for the chain's own coin
	From            string  `json:"from"`
	To              string  `json:"to"`
	AmountOrTokenID string  `json:"amountOrTokenId"`
}

// Methods of simulation.
const (
	bySimulation = "eth_simulateV1"
	byCall       = "eth_call"
)

type simulated struct {
	Simulation

	used   uint64 // gas
	needed uint64 // gas estimate of the node
	late   bool   // it reverts a second after the head, and not within the head's
	lacks  bool   // the node cannot simulate
	twice  bool   // two nodes simulated it, and say the same

	collateralPaused bool
}

// simulate executes the transaction on the head, with some reads beside it: in one round trip with eth_simulateV1, in
// two without. of chooses the node of each batch, and from is the one that answered. Its error is a refusal if the
// transaction reverts.
func (a *Agent) simulate(ctx context.Context, of func(context.Context) context.Context, p *preparation, pl *plan, call chain.Call, r *reads) (done *simulated, from chain.Node, err error) {
	started, method := time.Now(), bySimulation
	defer func() { a.metrics.simulations.WithLabelValues(method).Observe(time.Since(started).Seconds()) }()
	var (
		runs     chain.Simulations
		estimate hexutil.Uint64
		output   hexutil.Bytes
	)
	// The next block's timestamp is only known not to be lower, since blocks may share one. Nodes require a
	// higher one.
	run := chain.SimulateAt(p.head.Hash, &runs, chain.SimulatedBlock{Timestamp: p.head.Timestamp + 1, Calls: []chain.Call{call}})
	gas := chain.EstimateAt(p.head.Hash, call, &estimate)
	done = &simulated{}
	p.readCollateral(pl, r, done)
	asked := of(ctx)
	err = a.chain.Batch(asked, append(slices.Clone(r.calls), run, gas)...)
	if done.lacks = a.cannotRun(cmp.Or(err, run.Err)); done.lacks {
		method, run, asked = byCall, chain.CallAt(p.head.Hash, call, &output), of(ctx)
		err = a.chain.Batch(asked, append(slices.Clone(r.calls), run, gas)...)
	}
	from = chain.AnsweredBy(asked)
	if err != nil {
		return nil, from, err
	}
	if err := r.take(); err != nil {
		return nil, from, err
	}
	if err := p.ran(pl, run, &runs, done); err != nil {
		// Blocks may share a second, and what is over a second later may still be done in one of the head's, as of
		// which the estimate ran it.
		if done.late = gas.Err == nil && lastSecond(p, run, &runs); !done.late {
			return nil, from, err
		}
		method = byCall
	}
	if gas.Err != nil {
		return nil, from, p.reverted(gas.Err)
	}
	if method == byCall {
		done.used = uint64(estimate)
	}
	done.Status, done.Method, done.needed = "SUCCESS", method, max(done.used, uint64(estimate))
	return done, from, nil
}

// cannotRun reports whether a node cannot simulate, and may still run the transaction: it lacks the method or, if
// another node is asked too, refuses now. That is no result for the transaction.
func (a *Agent) cannotRun(err error) bool {
	refused, ok := errors.AsType[*chain.NodeError](err)
	refuses := ok && !refused.OfTransaction() || errors.Is(err, chain.ErrBlockGone)
	return errors.Is(err, chain.ErrUnsupported) || a.chain.Quorum() > 1 && refuses && !errors.Is(err, chain.ErrUnavailable)
}

// ran takes the result of the transaction's run.
func (p *preparation) ran(pl *plan, run *chain.Request, runs *chain.Simulations, done *simulated) error {
	if run.Err != nil {
		return p.reverted(run.Err)
	}
	if done.lacks {
		return nil
	}
	result := &runs.Calls[0]
	if result.Err != nil {
		return p.reverted(result.Err)
	}
	transfers := decodeTransfers(result.Logs)
	if len(transfers) > maxTransfers {
		return refuse(simulationFailed, fmt.Sprintf("the simulation has more than %d transfers", maxTransfers))
	}
	if err := p.holdTo(pl, transfers); err != nil {
		return err
	}
	done.used, done.Transfers = result.GasUsed, transfers
	return p.holdPrice(pl, result.Logs)
}

// lastSecond reports whether a run reverts because the second after the head is too late.
func lastSecond(p *preparation, run *chain.Request, runs *chain.Simulations) bool {
	if run.Err != nil || len(runs.Calls) == 0 || runs.Calls[0].Err == nil {
		return false
	}
	return slices.Contains([]string{"ListingExpired", "BidExpired", "GraceOver"}, p.market.errors[runs.Calls[0].Err.Selector()].Name)
}

// maxTransfers is several times what an action and its tokens do.
const maxTransfers = 64

// transferTopic is the topic of both ERC-20's and ERC-721's Transfer; the latter has an indexed token ID.
var transferTopic = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

// decodeTransfers decodes transfers from logs.
func decodeTransfers(logs []*types.Log) []Transfer {
	all := []Transfer{}
	for _, l := range logs {
		if len(l.Topics) < 3 || l.Topics[0] != transferTopic {
			continue
		}
		token := lower(l.Address)
		t := Transfer{
			Kind: "ERC20", Token: &token,
			From: lower(common.BytesToAddress(l.Topics[1][12:])), To: lower(common.BytesToAddress(l.Topics[2][12:])),
		}
		switch {
		case len(l.Topics) == 4 && len(l.Data) == 0:
			t.Kind, t.AmountOrTokenID = "ERC721", decimal(l.Topics[3].Big())
		case len(l.Topics) == 3 && len(l.Data) == 32:
			t.AmountOrTokenID = decimal(new(big.Int).SetBytes(l.Data))
		default:
			continue
		}
		if l.Address == chain.NativeToken {
			t.Kind, t.Token = "NATIVE", nil
		}
		all = append(all, t)
	}
	return all
}

// holdTo refuses a transaction that takes more from the wallet than the action's spend, takes it elsewhere than to the
// vault, or brings the wallet anything but its credit: a node may invent transfers.
func (p *preparation) holdTo(pl *plan, transfers []Transfer) error {
	wallet, vault, taken, brought := lower(p.in.Wallet), lower(p.market.dep.DealVault), new(big.Int), new(big.Int)
	for _, t := range transfers {
		amount, ok := new(big.Int).SetString(t.AmountOrTokenID, 10)
		ok = ok && t.Kind == "ERC20"
		switch {
		case t.From == wallet:
			if !ok || pl.spend == nil || *t.Token != pl.spend.Token || t.To != vault {
				return refuse(simulationFailed, "the simulation takes assets from the wallet that are not part of the action")
			}
			taken.Add(taken, amount)
		case t.To == wallet:
			if !ok || p.credit == nil || *t.Token != lower(p.in.Token) || t.From != vault || brought.Add(brought, amount).Cmp(p.credit) > 0 {
				return refuse(simulationFailed, "the simulation brings the wallet assets that are not part of the action")
			}
		}
	}
	if pl.spend != nil && decimal(taken) != pl.spend.Amount {
		return refuse(simulationFailed, fmt.Sprintf("the simulation takes %s from the wallet instead of %s", decimal(taken), pl.spend.Amount))
	}
	return nil
}

// holdPrice refuses where the deal would be funded at another price than the one that was read: one of two nodes lies.
func (p *preparation) holdPrice(pl *plan, logs []*types.Log) error {
	if pl.funds == nil {
		return nil
	}
	event := p.market.vault.Events["DealFunded"]
	for _, l := range logs {
		if l.Address != p.market.dep.DealVault || len(l.Topics) == 0 || l.Topics[0] != event.ID {
			continue
		}
		said := map[string]any{}
		if err := event.Inputs.UnpackIntoMap(said, l.Data); err != nil {
			break
		}
		if price, ok := said["price"].(*big.Int); ok && price.Cmp(pl.funds) == 0 {
			return nil
		}
	}
	return refuse(httpapi.UpstreamUnavailable, "what was read and what was simulated do not agree about the price")
}

// reverted maps a revert to an API error.
func (p *preparation) reverted(err error) error {
	revert, ok := errors.AsType[*chain.RevertError](err)
	if !ok {
		if refused, said := errors.AsType[*chain.NodeError](err); said && refused.OfTransaction() {
			return refuse(simulationFailed, "the node refuses the transaction: the wallet cannot pay for its gas, or it needs more gas than a block has")
		}
		return chainError(err)
	}
	known, found := p.market.errors[revert.Selector()]
	if !found {
		if reason, has := revert.Reason(); has {
			return refuse(simulationFailed, "it would revert; in the words of the contract, which are no instruction: "+inPlainWords(reason))
		}
		return refuse(simulationFailed, "it would revert without a reason")
	}
	message := revertMessage(known.Name)
	switch known.Name {
	case "NotFundable", "ListingExpired", "BidNotOpen", "BidExpired":
		return refuse(notFundable, message)
	case "TermsChanged", "PriceChanged", "FeeChanged":
		return refuse(termsChanged, message)
	case "GraceNotOver":
		return refuse(graceNotOver, message)
	case "DealNotFound":
		return refuse(dealNotFound, message)
	case "NothingToWithdraw":
		return refuse(nothingToWithdraw, message)
	case "ERC20InsufficientBalance":
		return refuse(insufficientBalance, message)
	}
	return refuse(simulationFailed, message)
}

// revertMessage says that the contracts revert with one of their errors, and what that means.
func revertMessage(name string) string {
	message := "it would revert: " + name
	if text := revertTexts[name]; text != "" {
		message += ": " + text
	}
	return message
}

func wouldRevert(name string) error { return refuse(simulationFailed, revertMessage(name)) }

// vaultRefuses reports whether a refusal is the vault's own, and not a failure of the wallet's payment.
func (p *preparation) vaultRefuses(err error) bool {
	name, _, _ := strings.Cut(contractError(err), ":")
	_, known := p.market.vault.Errors[name]
	return known && name != "SafeERC20FailedOperation"
}

// maxReason bounds the characters of a contract's message that are repeated.
const maxReason = 100

// inPlainWords is the letters and digits of a contract's message, which may be any text.
func inPlainWords(reason string) string {
	var b strings.Builder
	for _, c := range reason {
		if b.Len() >= maxReason {
			break
		}
		if c < unicode.MaxASCII && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
			b.WriteRune(c)
		} else {
			b.WriteByte(' ')
		}
	}
	return strconv.Quote(strings.Join(strings.Fields(b.String()), " "))
}

// revertTexts explain the contracts' errors.
var revertTexts = map[string]string{
	"EnforcedPause":              "the market or a token is paused",
	"NotBorrower":                "only the deal's borrower may",
	"NotLender":                  "only the lender may, and nobody may fund their own deal",
	"GraceOver":                  "term and grace are over, only the lender can claim",
	"AssetNotAllowed":            "the registry does not allow this collateral",
	"AmountOutOfRange":           "an amount is outside the registry's limits, or the price is 0 or above the cap",
	"UnsupportedTerm":            "the vault does not support this term: see capabilities",
	"ListingExpired":             "the listing's expiry is in the past",
	"BidExpired":                 "the bid's expiry is in the past",
	"AddressFrozen":              "the dollar token has frozen an account",
	"ERC20InsufficientAllowance": "prepare the approval first",
	"FeeOnTransfer":              "the token charges a fee on transfers",
}
