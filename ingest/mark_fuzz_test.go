package ingest

import (
	"bytes"
	"testing"

	"github.com/ethereum/go-ethereum/common"

	"github.com/lienstream/lienstream/contracts"
)

func FuzzMark(f *testing.F) {
	f.Add(markOf(contracts.Deployment{StartBlock: 7, DealVault: common.Address{1}, AssetRegistry: common.Address{2}}).encode())
	f.Add(mark{start: 1, followed: map[common.Address]joined{{1}: {block: 2}, {3}: {block: 4}}}.encode())
	f.Add(mark{start: 1, followed: map[common.Address]joined{{1}: {block: 2}, {3}: {block: 4, hash: common.Hash{5}, parts: 6, sum: sum{7}}}}.encode())
	f.Add(mark{start: 1, followed: map[common.Address]joined{{1}: {block: 2, asks: true, originBlock: 9}, {3}: {block: 4, hash: common.Hash{5}, parts: 6, sum: sum{7}}}}.encode())
	f.Add(mark{start: 1, noSums: true, followed: map[common.Address]joined{{1}: {block: 2, hash: common.Hash{5}, parts: 6}}}.encode())
	f.Add(mark{start: 1, short: true}.encode())
	f.Add(markBy(contracts.Deployment{StartBlock: 7, DealVault: common.Address{1}}, byHash).encode())
	f.Add(markBy(contracts.Deployment{StartBlock: 7, DealVault: common.Address{1}}, byPrefix).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := decodeMark(b); err == nil && !bytes.Equal(m.encode(), b) {
			t.Errorf("%x is decoded and encoded as %x", b, m.encode())
		}
	})
}

func FuzzUnchecked(f *testing.F) {
	f.Add(unchecked{{1}: 2, {3}: 4}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, err := decodeUnchecked(b); err == nil && !bytes.Equal(u.encode(), b) {
			t.Errorf("%x is decoded and encoded as %x", b, u.encode())
		}
	})
}

func FuzzAddresses(f *testing.F) {
	f.Add(append(words(32, 2), make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if all, ok := addresses(b); ok && len(all) != len(b)/32-2 {
			t.Errorf("%d addresses in %d bytes", len(all), len(b))
		}
	})
}
