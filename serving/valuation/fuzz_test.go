package valuation

import (
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// FuzzLoaded: a node's answer to extsload has as many words as were asked for, or is refused.
func FuzzLoaded(f *testing.F) {
	f.Add(make([]byte, 128), 2)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, data []byte, n int) {
		n &= 1<<10 - 1
		words, err := loaded(data, n)
		if err != nil {
			return
		}
		for i, w := range words {
			if word := w.Bytes32(); string(word[:]) != string(data[64+32*i:96+32*i]) {
				t.Errorf("word %d is %x", i, word)
			}
		}
		if len(words) != n {
			t.Errorf("%d words of %d", len(words), n)
		}
	})
}

// FuzzSigner: a transaction that a node makes up has no signer.
func FuzzSigner(f *testing.F) {
	key, err := crypto.ToECDSA(common.LeftPadBytes([]byte{1}, 32))
	if err != nil {
		f.Fatal(err)
	}
	chain := big.NewInt(7)
	tx := types.MustSignNewTx(key, types.LatestSignerForChainID(chain), &types.DynamicFeeTx{ChainID: chain, To: &common.Address{1}, Gas: 21000})
	text, err := tx.MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	signer := crypto.PubkeyToAddress(key.PublicKey)
	if signerOf(text, tx.Hash(), chain) != signer {
		f.Fatal("the signer is not found")
	}
	f.Add(text)
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if by := signerOf(text, tx.Hash(), chain); by != signer && by != (common.Address{}) {
			t.Errorf("signed by %s", by)
		}
	})
}
