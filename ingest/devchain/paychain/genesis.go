package paychain

import (
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm/runtime"
	"github.com/ethereum/go-ethereum/params"

	"github.com/lienstream/lienstream/contracts"
)

// Token is the address of the dollar: that of the real network's, because the reference client pays in no other
// unless it is told to.
var Token = common.HexToAddress("0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913")

// tokenSlots is how many slots the dollar's fields take, before anybody owns any.
const tokenSlots = 16

// TokenAccount is the dollar as it is once its constructor has run: it is there in block 0.
func TokenAccount(owner common.Address) (types.Account, error) {
	code, err := contracts.Bytecode("PaymentDollar")
	if err != nil {
		return types.Account{}, err
	}
	parsed, err := contracts.ABI("PaymentDollar")
	if err != nil {
		return types.Account{}, err
	}
	args, err := parsed.Pack("", owner, TokenName, TokenVersion)
	if err != nil {
		return types.Account{}, fmt.Errorf("build the dollar's genesis state: %w", err)
	}
	db, err := state.New(types.EmptyRootHash, state.NewDatabaseForTesting())
	if err != nil {
		return types.Account{}, fmt.Errorf("build the dollar's genesis state: %w", err)
	}
	rules := *params.AllDevChainProtocolChanges
	rules.ChainID = big.NewInt(ChainID)
	deployed, address, _, err := runtime.Create(append(code, args...), &runtime.Config{
		ChainConfig: &rules, State: db, Origin: owner, GasLimit: 10_000_000, BaseFee: new(big.Int),
	})
	if err != nil {
		return types.Account{}, fmt.Errorf("build the dollar's genesis state: %w", err)
	}
	account := types.Account{Code: deployed, Balance: new(big.Int), Storage: map[common.Hash]common.Hash{}}
	for i := range int64(tokenSlots) {
		slot := common.BigToHash(big.NewInt(i))
		if value := db.GetState(address, slot); value != (common.Hash{}) {
			account.Storage[slot] = value
		}
	}
	return account, nil
}
