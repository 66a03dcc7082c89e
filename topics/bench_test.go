package topics

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/holiman/uint256"

	"github.com/lienstream/lienstream/contracts"
)

var (
	benchRef = BlockRef{Number: 21_000_000, Hash: common.HexToHash("0x1b"), Timestamp: 1_800_000_000}
	benchLog = &Log{
		Block: benchRef, TxHash: common.HexToHash("0x2c"), TxIndex: 7, LogIndex: 31, Address: common.HexToAddress("0x3d"),
		Topics: make([]common.Hash, 3), Data: make([]byte, 160),
	}
	benchDeal = &Deal{
		ID: *uint256.NewInt(4242), AmountOrTokenID: *uint256.MustFromDecimal("125000000000000000000"), Cap: *uint256.NewInt(25_000_000_000),
		MinPrice: *uint256.NewInt(24_000_000_000), Term: 7 * 86400, FeeBps: 50, ListedAt: 1_800_000_000,
		Funding: &Funding{Price: *uint256.NewInt(24_500_000_000), Fee: *uint256.NewInt(122_500_000), FundedAt: 1_800_000_100},
	}
	benchEvent = &contracts.DealListed{
		DealID: *uint256.NewInt(4242), AmountOrTokenID: *uint256.MustFromDecimal("125000000000000000000"), Cap: *uint256.NewInt(25_000_000_000),
		MinPrice: *uint256.NewInt(24_000_000_000), Term: 7 * 86400, ListedAt: 1_800_000_000,
	}
)

func BenchmarkAppendRawLog(b *testing.B) {
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = AppendRaw(buf[:0], benchLog)
	}
}

func BenchmarkDecodeRawLog(b *testing.B) {
	value := AppendRaw(nil, benchLog)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeRaw(value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendDealRow(b *testing.B) {
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = benchDeal.AppendBinary(buf[:0])
	}
}

func BenchmarkUnmarshalDealRow(b *testing.B) {
	data, _ := benchDeal.AppendBinary(nil)
	b.ReportAllocs()
	var d Deal
	for b.Loop() {
		if err := d.UnmarshalBinary(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendDealEntity(b *testing.B) {
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = AppendDeal(buf[:0], benchDeal, benchRef)
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf, _ = AppendEvent(buf[:0], EventMeta{Block: benchRef, LogIndex: 3}, benchEvent)
	}
}
