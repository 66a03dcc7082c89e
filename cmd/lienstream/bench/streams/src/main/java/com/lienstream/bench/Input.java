package com.lienstream.bench;

import java.util.Arrays;

/** A record of the raw topic: Avro in the Confluent wire format, read in place. A log's data are words of 32 bytes. */
class Input {
    static final int NONE = -1, LOG = 1, PROBE = 2, BLOCK_END = 3, BLOCK_REVERT = 4, LINKED_END = 5, SAFE_END = 6;

    // The block of the last record.
    long number, time;
    final byte[] hash = new byte[32];

    byte[] v;
    int pos;
    private int address, topicCount, topic0, dataLength;
    int data;
    int txHash;
    long logIndex;

    /** Begins a record, and returns its schema. */
    int begin(byte[] value) {
        v = value;
        pos = 5;
        return v == null || v.length < 5 || v[0] != 0 ? NONE : Out.getInt(v, 1);
    }

    long varint() {
        long n = 0;
        for (int shift = 0; ; shift += 7) {
            byte b = v[pos++];
            n |= (long) (b & 0x7f) << shift;
            if (b >= 0) return n >>> 1 ^ -(n & 1);
        }
    }

    int take(int n) {
        int at = pos;
        pos += n;
        return at;
    }

    void block() {
        number = varint();
        int h = take(32);
        time = varint();
        System.arraycopy(v, h, hash, 0, 32);
    }

    /** Reads a log, and reports whether it has a topic. */
    boolean log() {
        block();
        txHash = take(32);
        varint(); // index of the transaction
        logIndex = varint();
        address = take(20);
        topicCount = 0;
        topic0 = pos;
        for (long n = varint(); n != 0; n = varint()) { // parts of an array; a negative count is followed by the size
            if (n < 0) {
                n = -n;
                varint();
            }
            if (topicCount == 0) topic0 = pos;
            topicCount += (int) n;
            take((int) n * 32);
        }
        dataLength = (int) varint();
        data = pos;
        return topicCount > 0;
    }

    /** The first 4 bytes of the event's topic. */
    int event() { return Out.getInt(v, topic0); }

    boolean isFrom(byte[] contract) { return Arrays.equals(v, address, address + 20, contract, 0, 20); }

    // ---- the ABI: positions of topics and words, and whether they fit their types

    int topic(int n) { return topic0 + 32 * n; }
    int word(int n) { return data + 32 * n; }
    boolean shape(int topics, int words) { return topicCount == topics && dataLength == 32 * words; }
    boolean atLeast(int topics, int words) { return topicCount == topics && dataLength >= 32 * words; }
    long small(int at) { return Out.getLong(v, at + 24); }

    boolean fits(int at, int bytes) {
        for (int i = 0; i < 32 - bytes; i++) if (v[at + i] != 0) return false;
        return true;
    }

    boolean upTo(int at, int most) { return fits(at, 1) && small(at) <= most; }

    byte last(int at) { return v[at + 31]; }
    void copy(int from, byte[] row, int to, int n) { System.arraycopy(v, from, row, to, n); }
    void address(int at, byte[] row, int to) { copy(at + 12, row, to, 20); }
    void amount(int at, byte[] row, int to) { copy(at + 16, row, to, 16); }
    void seconds(int at, byte[] row, int to) { copy(at + 24, row, to, 8); }

    /** Bytes of a number without its leading zeros. */
    int length(int at) {
        int n = 32;
        while (n > 0 && v[at + 32 - n] == 0) n--;
        return n;
    }
}
