package deals

import (
	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/processors/engine/state"
	"github.com/lienstream/lienstream/processors/market/family"
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
	return "", family.Put(w, Rewards, key, &topics.Reward{
		DealID: e.DealID, Epoch: e.N, Term: e.Term, Wanted: e.Wanted, Granted: e.Granted,
		LenderAmount: e.LenderAmount, BorrowerAmount: e.BorrowerAmount, BudgetExhausted: e.BudgetExhausted,
	})
}

func returned(w state.Writer, e *contracts.RewardReturned) (string, error) {
	key := Key(&e.DealID)
	var r topics.Reward
	if found, err := family.Get(w, Rewards, key, &r); err != nil || !found {
		return NoReward, err
	}
	if _, over := r.Returned.AddOverflow(&r.Returned, &e.Amount); over || r.Returned.Gt(&r.Granted) {
		return ReturnedOver, nil
	}
	return "", family.Put(w, Rewards, key, &r)
}
