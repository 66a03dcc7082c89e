package topics

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

var familyEvents = []contracts.Event{
	&contracts.DealListed{}, &contracts.DealTermsUpdated{}, &contracts.DealFunded{}, &contracts.DealReclaimed{}, &contracts.DealClaimed{},
	&contracts.DealCancelled{}, &contracts.BidPlaced{}, &contracts.BidWithdrawn{}, &contracts.BidAccepted{}, &contracts.RewardReserved{},
	&contracts.RewardReturned{}, &contracts.Credited{}, &contracts.Withdrawn{}, &contracts.DripCreated{}, &contracts.DripCut{},
	&contracts.DripClaimed{}, &contracts.AssetSet{}, &contracts.OpenRawChanged{}, &contracts.UIMultiplierUpdated{},
	&contracts.TokenPaused{}, &contracts.TokenUnpaused{},
	&contracts.PoolInitialized{}, &contracts.LiquidityModified{}, &contracts.Swapped{}, &contracts.PoolSet{}, &contracts.PositionTransferred{},
	&contracts.PositionStaked{}, &contracts.PositionCheckpointed{}, &contracts.PositionUnstaked{}, &contracts.EmissionsNotified{},
	&contracts.CreatorFeesNotified{}, &contracts.EmissionsClaimed{}, &contracts.CreatorFeeClaimed{},
	&contracts.EpochOpened{}, &contracts.EpochRatesSet{}, &contracts.EpochReserved{}, &contracts.EpochReturned{},
	&contracts.LiquidityReleased{}, &contracts.EpochClosed{}, &contracts.Burned{},
}

// fill sets every field of an event to something that is not zero.
func fill(e contracts.Event) {
	v := reflect.ValueOf(e).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); x := f.Addr().Interface().(type) {
		case *uint256.Int:
			x.SetUint64(uint64(1000 + i))
		case *common.Address:
			x[19] = byte(i + 1)
		case *common.Hash:
			x[31] = byte(i + 1)
		case *string:
			*x = "text"
		case *bool:
			*x = true
		case *int32:
			*x = -int32(i + 1)
		default:
			f.SetUint(1) // numbers and enumerations: every one has a 1
		}
	}
}

// Every field of every event arrives in the column of its name, and no other column is set.
func TestEventsFillTheirColumns(t *testing.T) {
	schemas := libraries(t)
	meta := EventMeta{Block: BlockRef{Number: 7, Hash: common.Hash{1}, Timestamp: 9}, Tx: common.Hash{2}, LogIndex: 3}
	const framing = 7 // block, transaction, log index, event and removed
	for _, e := range familyEvents {
		t.Run(e.Name(), func(t *testing.T) {
			fill(e)
			value, err := AppendEvent(nil, meta, e)
			if err != nil {
				t.Fatal(err)
			}
			fields, again := reencode(t, schemas, value)
			if !bytes.Equal(value, again) {
				t.Errorf("written\n%x, by the library\n%x", value, again)
			}
			if fields["event"] != e.Name() || fields["block_number"] != int64(7) || fields["log_index"] != int64(3) || fields["removed"] != false {
				t.Errorf("framing: %v", fields)
			}
			set := 0
			for _, v := range fields {
				if v != nil {
					set++
				}
			}
			if want := framing + reflect.TypeOf(e).Elem().NumField(); set != want {
				t.Errorf("%d columns are set, want %d: %v", set, want, fields)
			}
			removed, _ := reencode(t, schemas, MarkRemoved(value))
			if removed["removed"] != true || fields["removed"] != false {
				t.Error("MarkRemoved does not take a copy back")
			}
		})
	}
}

func TestEventWithoutAFamily(t *testing.T) {
	if _, err := AppendEvent(nil, EventMeta{}, &contracts.FeeSet{}); !errors.Is(err, ErrNoFamily) {
		t.Errorf("%v, want ErrNoFamily", err)
	}
}

func TestEventKey(t *testing.T) {
	m := EventMeta{Block: BlockRef{Hash: common.HexToHash("0xab")}, LogIndex: 12}
	if got, want := string(AppendEventKey(nil, m)), m.Block.Hash.Hex()+":12"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
