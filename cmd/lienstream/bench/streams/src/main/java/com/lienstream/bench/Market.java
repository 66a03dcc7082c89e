package com.lienstream.bench;

import static java.nio.charset.StandardCharsets.ISO_8859_1;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.internals.Change;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.internals.InternalProcessorContext;
import org.apache.kafka.streams.processor.internals.ProcessorNode;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.internals.CacheFlushListener;
import org.apache.kafka.streams.state.internals.WrappedStateStore;

/**
 * One partition of the raw topic: deals, bids, balances and assets, by the rules of processors/market.
 *
 * A row that changed goes out to its entity topic when the record cache is flushed, once a commit, as a KTable's does. Blocks
 * that may still be reverted leave what they overwrote in the store.
 */
final class Market extends ContextualProcessor<byte[], byte[], byte[], byte[]> {
    static final String STORE = "market";
    /** The ingester's --reorg-window: what is that far behind the head is final. */
    private static final long WINDOW = 128;
    /** The partition that the thread works on: entities go to the same one, as ours do. */
    static final ThreadLocal<int[]> PARTITION = ThreadLocal.withInitial(() -> new int[1]);

    private final byte[] vault, registry;
    private final boolean events;
    private final Events in = new Events(this);
    private final Out out = new Out();
    private KeyValueStore<Bytes, byte[]> store;
    private InternalProcessorContext<byte[], byte[]> internal;
    private ProcessorNode<?, ?, ?, ?> node;
    private int partition;
    private long finalized = -1; // as of the last barrier, of later blocks too: a barrier calls none of these final
    private final TreeMap<Long, Integer> undo = new TreeMap<>(); // entries by block

    Market(byte[] vault, byte[] registry, boolean events) {
        this.vault = vault;
        this.registry = registry;
        this.events = events;
    }

    @Override public void init(ProcessorContext<byte[], byte[]> c) {
        super.init(c);
        internal = (InternalProcessorContext<byte[], byte[]>) c;
        node = internal.currentNode();
        partition = c.taskId().partition();
        store = c.getStateStore(STORE);
        flushesTo(this::flushed);
        byte[] low = {Rows.UNDO}, high = {Rows.UNDO + 1};
        try (KeyValueIterator<Bytes, byte[]> it = store.range(Bytes.wrap(low), Bytes.wrap(high))) {
            while (it.hasNext()) {
                byte[] k = it.next().key.get();
                if (k[0] == Rows.UNDO) undo.merge(Out.getLong(k, 1), Out.getInt(k, 9) + 1, Math::max);
            }
        }
    }

    @SuppressWarnings("unchecked")
    private void flushesTo(CacheFlushListener<Bytes, byte[]> listener) {
        ((WrappedStateStore<?, Bytes, byte[]>) store).setFlushListener(listener, false);
    }

    /** An entry of the record cache was flushed: the row's message goes out. */
    private void flushed(Record<Bytes, Change<byte[]>> r) {
        byte[] key = r.key().get(), row = r.value().newValue;
        if (key[0] == Rows.UNDO) return;
        ProcessorNode<?, ?, ?, ?> before = internal.currentNode();
        internal.setCurrentNode(node);
        try {
            PARTITION.get()[0] = partition;
            byte[] message = row == null ? null : Rows.message(out, key, row, in);
            context().forward(new Record<>(Rows.messageKey(out, key), message, r.timestamp()), Rows.TABLES[key[0]]);
        } finally {
            internal.setCurrentNode(before);
        }
    }

    @Override public void process(Record<byte[], byte[]> r) {
        switch (in.begin(r.value())) {
            case Input.LOG -> log(r.timestamp());
            case Input.PROBE -> in.probe();
            case Input.BLOCK_END, Input.LINKED_END, Input.SAFE_END -> blockEnd();
            case Input.BLOCK_REVERT -> blockRevert();
            default -> { }
        }
    }

    private void log(long time) {
        if (!in.log()) return;
        if (in.isFrom(vault)) in.vault();
        else if (in.isFrom(registry)) in.registry();
        if (events) event(time);
    }

    /** About what our events cost: the log as it is, to a topic of all and to one of the final ones. */
    private void event(long time) {
        out.reset();
        out.hex(in.hash, 0, 32);
        out.put((byte) ':');
        out.bytes(Long.toString(in.logIndex).getBytes(ISO_8859_1));
        byte[] key = out.copy();
        PARTITION.get()[0] = partition;
        context().forward(new Record<>(key, in.v, time), "event");
        if (in.number <= finalized) context().forward(new Record<>(key, in.v, time), "final");
    }

    private void blockEnd() {
        in.block();
        in.take(32); // parent
        in.varint(); // records
        finalized = Math.max(finalized, in.varint());
        finalized = Math.max(finalized, in.varint() - WINDOW); // head
        while (!undo.isEmpty() && undo.firstKey() <= finalized) {
            Map.Entry<Long, Integer> e = undo.pollFirstEntry();
            for (int i = 0; i < e.getValue(); i++) store.put(undoKey(e.getKey(), i), null);
        }
    }

    private void blockRevert() {
        in.block();
        long number = in.number;
        in.block(); // the barrier before it
        Integer n = undo.remove(number);
        for (int i = n == null ? -1 : n - 1; i >= 0; i--) {
            Bytes at = undoKey(number, i);
            byte[] u = store.get(at);
            Bytes key = Bytes.wrap(Arrays.copyOfRange(u, 1, 1 + u[0]));
            store.put(key, u[1 + u[0]] == 0 ? null : Arrays.copyOfRange(u, 2 + u[0], u.length));
            store.put(at, null);
        }
    }

    private static Bytes undoKey(long block, int n) {
        byte[] k = new byte[13];
        k[0] = Rows.UNDO;
        Out.putLong(k, 1, block);
        Out.putInt(k, 9, n);
        return Bytes.wrap(k);
    }

    byte[] get(Bytes key) { return store.get(key); }

    void put(Bytes key, byte[] old, byte[] row) {
        if (in.number > finalized) {
            byte[] k = key.get(), u = new byte[2 + k.length + (old == null ? 0 : old.length)];
            u[0] = (byte) k.length;
            System.arraycopy(k, 0, u, 1, k.length);
            if (old != null) {
                u[1 + k.length] = 1;
                System.arraycopy(old, 0, u, 2 + k.length, old.length);
            }
            int n = undo.merge(in.number, 1, Integer::sum) - 1;
            store.put(undoKey(in.number, n), u);
        }
        store.put(key, row);
    }
}
