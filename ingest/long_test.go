package ingest_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"

	"github.com/lienstream/lienstream/contracts"
	"github.com/lienstream/lienstream/ingest/rpc"
	"github.com/lienstream/lienstream/ingest/rpc/rpctest"
	"github.com/lienstream/lienstream/topics"
)

// TestLogAboveARecord: a stranger writes a log, with a topic that is wanted from any address, whose data exceeds the
// topic's record limit. The topic has its beginning, which decodes no more than the whole would; it is counted, and
// blocks keep coming in.
func TestLogAboveARecord(t *testing.T) {
	t.Parallel()
	const blocks, every = 20, 10
	written := types.Log{Address: common.Address{9}, Topics: contracts.TokenTopics()[1:2], Data: bytes.Repeat([]byte{7}, topics.MaxRecordBytes+1)}
	node := rpctest.NewSparse(sparseDeployment.ChainID, blocks, every, written)
	t.Cleanup(node.Close)
	w, cfg := sparseWorld(t, node)
	cfg.RPC.Proof = rpc.ProofAll
	cfg.RPC.Timeout *= slowness
	in := run(t, cfg)
	in.untilPublished(t, blocks, slowness*time.Minute)
	if n := value(t, in.reg, "lienstream_ingest_logs_cut_total"); n != blocks/every {
		t.Errorf("%v logs were cut", n)
	}
	decoder, logs := contracts.NewDecoder(sparseDeployment), 0
	for partition := range int32(partitions) {
		r, err := readUntil(t.Context(), w.kafka, w.topic, partition, node.Hash(blocks))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range r.blocks {
			for _, raw := range b.records {
				logs++
				l := raw.(*topics.Log)
				if l.Address != written.Address || !bytes.Equal(l.Data, written.Data[:topics.MaxLogData]) {
					t.Errorf("a log of %s has %d bytes", l.Address, len(l.Data))
				}
				whole, part := decoder.Decode(written.Address, written.Topics, written.Data), decoder.Decode(l.Address, l.Topics, l.Data)
				if *whole.(*contracts.Unknown) != *part.(*contracts.Unknown) {
					t.Errorf("it is %+v, and its beginning %+v", whole, part)
				}
			}
		}
	}
	if logs != blocks/every {
		t.Errorf("the topic has %d logs", logs)
	}
}

// TestLongLogs: a stranger fills a chain's history with long logs. A range of them exceeds the memory bound, and
// smaller ones come in.
func TestLongLogs(t *testing.T) {
	t.Parallel()
	const blocks, data = 600, 4 << 10
	written := sparseLog()
	written.Data = make([]byte, data)
	node := rpctest.NewSparse(sparseDeployment.ChainID, blocks, 1, written)
	t.Cleanup(node.Close)
	_, cfg := sparseWorld(t, node)
	cfg.RPC.MaxHeld = 16 * data // a quarter of the first range
	cfg.RPC.Timeout *= slowness
	in := run(t, cfg)
	in.untilPublished(t, blocks, slowness*time.Minute)
	if n, failed := in.Status().Records, value(t, in.reg, "lienstream_ingest_sessions_failed_total"); n != blocks || failed > 0 {
		t.Errorf("%d logs came in of %d, and %v sessions ended", n, blocks, failed)
	}
}
