package devchain

import (
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/rpc"

	"github.com/lienstream/lienstream/topics/polltest"
)

// A chain on disk is the same chain, with or without the states of old blocks, and leaves nothing behind.
func TestScratch(t *testing.T) {
	scratch := t.TempDir()
	run := func(cfg Config) string {
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := newScenario(t, deploy(t, c, MarketConfig{}), ScenarioConfig{Reorgs: true, ReorgEvery: 5})
		head := steps(t, s, 20)
		if entries, err := os.ReadDir(scratch); err != nil || (len(entries) == 1) != (cfg.Scratch != "") {
			t.Errorf("with scratch %q: %d entries there: %v", cfg.Scratch, len(entries), err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return head.Hash.Hex()
	}
	memory := run(Config{})
	for _, cfg := range []Config{{Scratch: scratch}, {Scratch: scratch, Prune: true}, {Prune: true}} {
		if head := run(cfg); head != memory {
			t.Errorf("head %s with %+v, %s in memory", head, cfg, memory)
		}
	}
	if entries, err := os.ReadDir(scratch); err != nil || len(entries) != 0 {
		t.Errorf("%d entries left behind: %v", len(entries), err)
	}
}

// Pruned, contracts answer as of the last 128 blocks, also after reorgs, and say so below; the receipts are there.
func TestPrune(t *testing.T) {
	const kept, blocks = 128, 300
	c := newChain(t, Config{Scratch: t.TempDir(), Prune: true})
	m := deploy(t, c, MarketConfig{})
	first := m.head.Number
	s := newScenario(t, m, ScenarioConfig{TxsPerBlock: 1, Reorgs: true})
	deals := make(map[uint64]string)
	ask := func(number uint64) (string, error) {
		data, err := m.vault.abi.Pack("nextDealId")
		if err != nil {
			t.Fatal(err)
		}
		answer, err := c.Client().CallContract(t.Context(), ethereum.CallMsg{To: &m.vault.address, Data: data}, new(big.Int).SetUint64(number))
		return string(answer), err
	}
	var head uint64
	for head < first+blocks {
		head = steps(t, s, 1).Number
		for number := max(first, head-min(head, 65)); number <= head; number++ { // what a reorg may have dropped
			var err error
			if deals[number], err = ask(number); err != nil {
				t.Fatal(err)
			}
		}
	}
	for number := head - kept + 1; number <= head; number++ {
		if answer, err := ask(number); err != nil || answer != deals[number] {
			t.Fatalf("block %d of %d: %x, %v, want %x", number, head, answer, err, deals[number])
		}
	}
	if _, err := ask(first + 1); err == nil || !strings.Contains(err.Error(), "not available") {
		t.Errorf("a block whose state is gone: %v", err)
	}
	receipts, err := c.Client().BlockReceipts(t.Context(), rpc.BlockNumberOrHashWithNumber(rpc.BlockNumber(first)))
	if err != nil || len(receipts) == 0 {
		t.Errorf("block %d has %d receipts: %v", first, len(receipts), err)
	}
}

// A chain says that its disk is full before its database cannot write, and goes on once it has room.
func TestFullDisk(t *testing.T) {
	c := newChain(t, Config{Scratch: t.TempDir()})
	c.free = func(string) (uint64, error) { return scratchReserve - 1, nil }
	if _, err := c.Mine(t.Context(), defaultGenesisTime+1, nil); !errors.Is(err, ErrDiskFull) {
		t.Errorf("a block on a full disk: %v", err)
	}
	c.free = free
	if _, err := c.Mine(t.Context(), defaultGenesisTime+1, nil); err != nil {
		t.Errorf("a block once there is room: %v", err)
	}
}

// What a killed process left goes when the next chain begins; what another one uses stays.
func TestSweep(t *testing.T) {
	scratch := t.TempDir()
	killed := filepath.Join(scratch, scratchPrefix+"1")
	if err := os.MkdirAll(filepath.Join(killed, nodeName), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(killed, nodeName, "LOCK"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := newChain(t, Config{Scratch: scratch})
	newChain(t, Config{Scratch: scratch})
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("the folder of a killed chain is there: %v", err)
	}
	if _, err := os.Stat(other.dir); err != nil {
		t.Errorf("the folder of a chain that runs: %v", err)
	}
}

// What a chain that ends still has to do is not waited for beyond its patience. If it has a folder nothing is lost by that, and it goes.
func TestPatience(t *testing.T) {
	scratch := t.TempDir()
	for _, cfg := range []Config{{Patience: 1}, {Patience: 1, Scratch: scratch}} {
		c, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); (err == nil) != (cfg.Scratch != "") {
			t.Errorf("with scratch %q: %v", cfg.Scratch, err)
		}
	}
	polltest.Within(t, time.Minute, func() error {
		entries, err := os.ReadDir(scratch)
		if len(entries) > 0 {
			err = fmt.Errorf("%d entries are left", len(entries))
		}
		return err
	})
}
