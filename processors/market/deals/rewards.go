package deals

import (
	"fmt"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/topics"
)

// Rewards has a row, topics.Reward, for each deal with a reward, under Key of the deal.
var Rewards = &state.Table{
	ID: tableRewards, Name: "rewards",
	Entity: &state.EntityTopic{Name: topics.EntityReward, Key: dealEntityKey, Encode: topics.EncodeReward},
}

func reserved(w state.Writer, e *contracts.RewardReserved) (string, error) {
	key := Key(&e.DealID)
	if row, err := w.Get(Rewards, key); err != nil || row != nil {
		return ReservedTwice, err
	}
	return "", putReward(w, key, &topics.Reward{
		DealID: e.DealID, Epoch: e.N, Term: e.Term, Wanted: e.Wanted, Granted: e.Granted,
		LenderAmount: e.LenderAmount, BorrowerAmount: e.BorrowerAmount, BudgetExhausted: e.BudgetExhausted,
	})
}

func returned(w state.Writer, e *contracts.RewardReturned) (string, error) {
	key := Key(&e.DealID)
	row, err := w.Get(Rewards, key)
	if err != nil || row == nil {
		return NoReward, err
	}
	var r topics.Reward
	if err := r.UnmarshalBinary(row); err != nil {
		return "", fmt.Errorf("reward of deal %s: %w", e.DealID.Dec(), err)
	}
	if _, over := r.Returned.AddOverflow(&r.Returned, &e.Amount); over || r.Returned.Gt(&r.Granted) {
		return ReturnedOver, nil
	}
	return "", putReward(w, key, &r)
}

func putReward(w state.Writer, key []byte, r *topics.Reward) error {
	row, err := r.AppendBinary(nil)
	if err != nil {
		return err
	}
	w.Put(Rewards, key, row)
	return nil
}
