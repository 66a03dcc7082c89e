package devchain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

const (
	anvilStartTimeout = 20 * time.Second
	anvilStopTimeout  = 5 * time.Second
	anvilCallTimeout  = 30 * time.Second
	anvilDeath        = time.Second // within which the end of its output follows that of its connections
	anvilLastWords    = 16 << 10    // bytes
	anvilListening    = "Listening on "
	anvilBatch        = 25  // requests
	anvilStates       = 500 // past states that it keeps, in memory: what is older goes to files that nobody removes
)

// AnvilConfig says how to start anvil. The zero value of a field stands for its default, but for Binary.
type AnvilConfig struct {
	Binary      string // path of the program, an npm package under contracts/node_modules
	ChainID     uint64 // 4663
	Seed        uint64 // as in Config
	GenesisTime uint64 // as in Config
	GasLimit    uint64 // as in Config
	SafeBlocks  uint64 // as in Config; the finalized block is twice as far behind
}

// Anvil is a node from another maker than Chain, in a process of its own. It differs where an indexer
// may trip: blocks may repeat their parent's timestamp, a rewind tells subscribers nothing, and block
// hashes are random.
type Anvil struct {
	cfg     AnvilConfig
	process *exec.Cmd
	address string
	client  *ethclient.Client

	output    chan struct{} // closed once the process's output ends
	last      lastWords
	closeOnce sync.Once
	closeErr  error
}

// StartAnvil starts the program on a free port and waits until it answers. The caller closes it.
func StartAnvil(ctx context.Context, cfg AnvilConfig) (*Anvil, error) {
	cfg.ChainID = or(cfg.ChainID, DefaultChainID)
	cfg.GenesisTime = or(cfg.GenesisTime, defaultGenesisTime)
	cfg.GasLimit = or(cfg.GasLimit, defaultGasLimit)
	cfg.SafeBlocks = or(cfg.SafeBlocks, defaultSafeBlocks)
	a := &Anvil{cfg: cfg, output: make(chan struct{})}
	// The context bounds the start alone: the process lives until Close.
	a.process = exec.Command(cfg.Binary, "--port", "0", "--no-mining", "--order", "fifo", "--accounts", "1", //nolint:noctx // see above
		"--hardfork", "prague",
		"--prune-history", strconv.Itoa(anvilStates),
		"--chain-id", strconv.FormatUint(cfg.ChainID, 10),
		"--timestamp", strconv.FormatUint(cfg.GenesisTime, 10),
		"--gas-limit", strconv.FormatUint(cfg.GasLimit, 10),
		"--slots-in-an-epoch", strconv.FormatUint(cfg.SafeBlocks, 10))
	stdout, err := a.process.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start anvil: %w", err)
	}
	a.process.Stderr = &a.last
	if err := a.process.Start(); err != nil {
		return nil, fmt.Errorf("start anvil: %w", err)
	}
	listening := make(chan string, 1)
	go a.readOutput(stdout, listening)
	if err := a.connect(ctx, listening); err != nil {
		return nil, errors.Join(fmt.Errorf("start anvil: %w", err), a.Close())
	}
	return a, nil
}

// readOutput finds the port that the process chose, then keeps reading so that it never waits for us.
func (a *Anvil) readOutput(stdout io.Reader, listening chan<- string) {
	defer close(a.output)
	defer close(listening)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if address, found := strings.CutPrefix(lines.Text(), anvilListening); found {
			listening <- address
			break
		}
	}
	_, _ = io.Copy(&a.last, stdout) // it ends with the process, whose exit says more than this error
}

// lastWords keeps the end of what a process writes: what it died of, after the requests that led to it.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (l *lastWords) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, text...)
	if over := len(l.text) - anvilLastWords; over > 0 {
		l.text = slices.Delete(l.text, 0, over)
	}
	return len(text), nil
}

func (l *lastWords) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

func (a *Anvil) connect(ctx context.Context, listening <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, anvilStartTimeout)
	defer cancel()
	select {
	case address, ok := <-listening:
		if !ok {
			return errors.New("the process exited before it listened")
		}
		a.address = address
	case <-ctx.Done():
		return fmt.Errorf("wait for anvil to listen: %w", ctx.Err())
	}
	client, err := rpc.DialContext(ctx, a.HTTP())
	if err != nil {
		return err
	}
	a.client = ethclient.NewClient(client)
	return a.call(ctx, nil, "anvil_setBalance", actorAddress(a.cfg.Seed, Deployer), (*hexutil.Big)(deployerFunds()))
}

func (a *Anvil) call(ctx context.Context, result any, method string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, anvilCallTimeout)
	defer cancel()
	if err := a.client.Client().CallContext(ctx, result, method, args...); err != nil {
		return a.orDeath(fmt.Errorf("%s: %w", method, err))
	}
	return nil
}

// orDeath adds to a call's error what the process wrote last, where it has ended: the call says but EOF.
func (a *Anvil) orDeath(err error) error {
	if errors.As(err, new(rpc.Error)) {
		return err // an answer
	}
	select {
	case <-a.output:
		return fmt.Errorf("%w: anvil ended, after it wrote:\n%s", err, &a.last)
	case <-time.After(anvilDeath):
		return err
	}
}

// HTTP is the address of the JSON-RPC API over HTTP.
func (a *Anvil) HTTP() string { return "http://" + a.address }

// WS is the address of the JSON-RPC API over WebSocket.
func (a *Anvil) WS() string { return "ws://" + a.address }

// Client speaks to the node over HTTP.
func (a *Anvil) Client() *ethclient.Client { return a.client }

// Traits says in what this node differs from others.
func (a *Anvil) Traits() Traits {
	return Traits{
		ChainID:         new(big.Int).SetUint64(a.cfg.ChainID),
		SafeBlocks:      a.cfg.SafeBlocks,
		EqualTimestamps: true,
	}
}

// Close ends the process, by force when it does not go at once. It may be called more than once.
func (a *Anvil) Close() error {
	a.closeOnce.Do(func() {
		if a.client != nil {
			a.client.Close()
		}
		_ = a.process.Process.Signal(syscall.SIGTERM) // an error means that it is gone already
		select {
		case <-a.output:
		case <-time.After(anvilStopTimeout):
			_ = a.process.Process.Kill()
			<-a.output
		}
		var exit *exec.ExitError
		if err := a.process.Wait(); err != nil && !errors.As(err, &exit) { // an exit by our signal is what we asked for
			a.closeErr = fmt.Errorf("stop anvil: %w", err)
		}
	})
	return a.closeErr
}

// Mine puts a block on the head. The pool holds nothing but these transactions, in the order sent.
func (a *Anvil) Mine(ctx context.Context, timestamp uint64, txs []*types.Transaction) (*Block, error) {
	if err := a.send(ctx, txs); err != nil {
		return nil, errors.Join(err, a.call(ctx, nil, "anvil_dropAllTransactions"))
	}
	if err := a.call(ctx, nil, "evm_setNextBlockTimestamp", timestamp); err != nil {
		return nil, errors.Join(err, a.call(ctx, nil, "anvil_dropAllTransactions"))
	}
	if err := a.call(ctx, nil, "evm_mine"); err != nil {
		return nil, err
	}
	block := new(Block)
	var header struct {
		Number     hexutil.Uint64
		Hash       common.Hash
		ParentHash common.Hash
		Timestamp  hexutil.Uint64
	}
	if err := a.call(ctx, &header, "eth_getBlockByNumber", "latest", false); err != nil {
		return nil, err
	}
	block.Number, block.Hash, block.Parent = uint64(header.Number), header.Hash, header.ParentHash
	block.Timestamp = uint64(header.Timestamp)
	if err := a.call(ctx, &block.Receipts, "eth_getBlockReceipts", header.Number); err != nil {
		return nil, err
	}
	if len(block.Receipts) != len(txs) {
		return nil, fmt.Errorf("mine block %d: sent %d transactions, mined %d", block.Number, len(txs), len(block.Receipts))
	}
	for i, tx := range txs {
		if block.Receipts[i].TxHash != tx.Hash() {
			return nil, fmt.Errorf("mine block %d: transaction %d is not the one sent", block.Number, i)
		}
	}
	return block, nil
}

// send puts transactions into the pool, a few at a time: anvil handles a longer batch in another order.
func (a *Anvil) send(ctx context.Context, txs []*types.Transaction) error {
	for some := range slices.Chunk(txs, anvilBatch) {
		if err := a.sendBatch(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (a *Anvil) sendBatch(ctx context.Context, txs []*types.Transaction) error {
	batch := make([]rpc.BatchElem, len(txs))
	for i, tx := range txs {
		raw, err := tx.MarshalBinary()
		if err != nil {
			return fmt.Errorf("encode transaction %s: %w", tx.Hash(), err)
		}
		batch[i] = rpc.BatchElem{Method: "eth_sendRawTransaction", Args: []any{hexutil.Bytes(raw)}, Result: new(common.Hash)}
	}
	ctx, cancel := context.WithTimeout(ctx, anvilCallTimeout)
	defer cancel()
	if err := a.client.Client().BatchCallContext(ctx, batch); err != nil {
		return a.orDeath(fmt.Errorf("send %d transactions: %w", len(txs), err))
	}
	for i, answer := range batch {
		if answer.Error != nil {
			return fmt.Errorf("send transaction %s: %w", txs[i].Hash(), answer.Error)
		}
	}
	return nil
}

// Rewind makes the block depth below the head the head.
func (a *Anvil) Rewind(ctx context.Context, depth uint64) error {
	if depth == 0 {
		return nil // anvil takes 0 for 1
	}
	return a.call(ctx, nil, "anvil_rollback", depth)
}
