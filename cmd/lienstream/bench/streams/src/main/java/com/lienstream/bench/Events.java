package com.lienstream.bench;

import static com.lienstream.bench.Rows.*;

import java.util.Arrays;
import org.apache.kafka.common.utils.Bytes;

/** What logs and probes do to rows. A log that does not fit its event, or breaks a rule of the vault's, does nothing. */
final class Events extends Input {
    private final Market market;

    Events(Market market) { this.market = market; }

    // By the first 4 bytes of the topic. What is none of these changes no row here.

    void vault() {
        switch (event()) {
            case 0x4a6740ad -> listed(); // DealListed
            case 0x14888480 -> termsUpdated(); // DealTermsUpdated
            case 0xa509670c -> funded(); // DealFunded
            case 0xbde6ca9f -> ended(4, 2, FUNDED, RECLAIMED); // DealReclaimed
            case 0xb4c8a2b5 -> ended(4, 1, FUNDED, CLAIMED); // DealClaimed
            case 0x47714f91 -> ended(3, 1, LISTED, CANCELLED); // DealCancelled
            case 0x5943c6c2 -> placed(); // BidPlaced
            case 0x6bbd301a -> closeBid(WITHDRAWN); // BidWithdrawn
            case 0x505cb41f -> closeBid(ACCEPTED); // BidAccepted
            case 0x5469b50e -> credited(); // Credited
            case 0xcf83d449 -> withdrawn(); // Withdrawn
            default -> { }
        }
    }

    void registry() {
        switch (event()) {
            case 0xe60993f6 -> assetSet(); // AssetSet
            case 0xef87eb6b -> openRaw(); // OpenRawChanged
            default -> { }
        }
    }

    private Bytes dealKey() { return numberKey(DEALS, topic(1), -1); }

    private Bytes numberKey(int table, int a, int b) {
        int na = length(a), nb = b < 0 ? 0 : length(b);
        byte[] k = new byte[2 + na + (b < 0 ? 0 : 1 + nb)];
        k[0] = (byte) table;
        k[1] = (byte) na;
        System.arraycopy(v, a + 32 - na, k, 2, na);
        if (b >= 0) {
            k[2 + na] = (byte) nb;
            System.arraycopy(v, b + 32 - nb, k, 3 + na, nb);
        }
        return Bytes.wrap(k);
    }

    // ---- deals and bids

    private void listed() {
        if (!shape(4, 10) || !fits(topic(2), 20) || !fits(topic(3), 20) || !upTo(word(0), 1) || !upTo(word(1), 3)
            || !fits(word(3), 16) || !fits(word(4), 16) || !fits(word(5), 4) || !fits(word(6), 5) || !fits(word(7), 5) || !fits(word(8), 2)) return;
        Bytes key = dealKey();
        if (market.get(key) != null) return;
        byte[] d = new byte[D_END];
        d[D_STATE] = LISTED;
        d[D_KIND] = last(word(0));
        d[D_LANE] = last(word(1));
        address(topic(2), d, D_BORROWER);
        address(topic(3), d, D_TOKEN);
        copy(word(2), d, D_AMOUNT, 32);
        amount(word(3), d, D_CAP);
        amount(word(4), d, D_MIN);
        copy(word(5) + 28, d, D_TERM, 4);
        seconds(word(6), d, D_EXPIRY);
        seconds(word(7), d, D_LISTED_AT);
        copy(word(8) + 28, d, D_FEE_BPS, 4);
        copy(word(9), d, D_TERMS, 32);
        copy(txHash, d, D_TX, 32);
        market.put(key, null, d);
    }

    private void termsUpdated() {
        if (!shape(2, 5) || !fits(word(0), 16) || !fits(word(1), 16) || !fits(word(2), 4) || !fits(word(3), 5)) return;
        Bytes key = dealKey();
        byte[] old = market.get(key);
        if (old == null || old[D_STATE] != LISTED) return;
        byte[] d = old.clone();
        amount(word(0), d, D_CAP);
        amount(word(1), d, D_MIN);
        copy(word(2) + 28, d, D_TERM, 4);
        seconds(word(3), d, D_EXPIRY);
        copy(word(4), d, D_TERMS, 32);
        market.put(key, old, d);
    }

    private void funded() {
        if (!shape(4, 7) || !fits(topic(2), 20) || !fits(word(0), 16) || !fits(word(1), 16) || !fits(word(2), 16) || !fits(word(3), 5) || !fits(word(4), 5) || !fits(word(5), 5)) return;
        Bytes key = dealKey();
        byte[] old = market.get(key);
        if (old == null || old[D_STATE] != LISTED) return;
        byte[] d = Arrays.copyOf(old, F_END);
        d[D_STATE] = FUNDED;
        d[D_FUNDED] = 1;
        address(topic(2), d, F_LENDER);
        amount(word(0), d, F_PRICE);
        amount(word(1), d, F_FEE);
        seconds(word(3), d, F_AT);
        seconds(word(4), d, F_EXPIRY);
        seconds(word(5), d, F_GRACE);
        copy(txHash, d, F_TX, 32);
        market.put(key, old, d);
    }

    private void ended(int topics, int words, int from, int to) {
        if (!shape(topics, words) || !fits(topic(2), 20) || topics > 3 && !fits(topic(3), 20) || words > 1 && !fits(word(0), 16) || !fits(word(words - 1), 5)) return;
        Bytes key = dealKey();
        byte[] old = market.get(key);
        if (old == null || old[D_STATE] != from) return;
        byte[] d = Arrays.copyOf(old, S_END);
        d[D_STATE] = (byte) to;
        copy(txHash, d, S_TX, 32);
        market.put(key, old, d);
    }

    private void placed() {
        if (!shape(4, 4) || !fits(topic(3), 20) || !fits(word(0), 16) || !fits(word(1), 5) || !fits(word(2), 5)) return;
        Bytes key = dealKey(), bidKey = numberKey(BIDS, topic(1), topic(2));
        byte[] old = market.get(key);
        if (old == null || old[D_STATE] != LISTED || market.get(bidKey) != null) return;
        byte[] b = new byte[B_END];
        b[B_STATE] = OPEN;
        address(topic(3), b, B_LENDER);
        amount(word(0), b, B_PRICE);
        seconds(word(1), b, B_EXPIRY);
        seconds(word(2), b, B_PLACED);
        copy(word(3), b, B_TERMS, 32);
        copy(txHash, b, B_TX, 32);
        market.put(bidKey, null, b);
        byte[] d = old.clone();
        Out.putInt(d, D_BIDS, Out.getInt(d, D_BIDS) + 1);
        market.put(key, old, d);
    }

    private void closeBid(int to) {
        if (!shape(4, 2) || !fits(topic(3), 20) || !fits(word(0), 16) || !fits(word(1), 5)) return;
        Bytes key = dealKey(), bidKey = numberKey(BIDS, topic(1), topic(2));
        byte[] oldBid = market.get(bidKey);
        if (oldBid == null || oldBid[B_STATE] != OPEN) return;
        byte[] b = oldBid.clone();
        b[B_STATE] = (byte) to;
        market.put(bidKey, oldBid, b);
        byte[] old = market.get(key);
        if (old == null || Out.getInt(old, D_BIDS) == 0) return;
        byte[] d = old.clone();
        Out.putInt(d, D_BIDS, Out.getInt(d, D_BIDS) - 1);
        market.put(key, old, d);
    }

    // ---- balances

    private Bytes balanceKey(int amount, boolean nft) {
        byte[] k = new byte[41 + (nft ? 32 : 0)];
        k[0] = BALANCES;
        address(topic(1), k, 1);
        address(topic(2), k, 21);
        if (nft) copy(amount, k, 41, 32);
        return Bytes.wrap(k);
    }

    private void credited() {
        if (!shape(4, 3) || !fits(topic(1), 20) || !fits(topic(2), 20) || !upTo(word(0), 2) || !upTo(word(2), 5)) return;
        boolean nft = last(word(0)) == NFT;
        Bytes key = balanceKey(word(1), nft);
        byte[] old = market.get(key);
        if (nft && old != null) return;
        byte[] c = new byte[C_END];
        c[C_KIND] = last(word(0));
        copy(word(1), c, C_AMOUNT, 32);
        if (old != null && Out.add(c, C_AMOUNT, old, C_AMOUNT)) return;
        if (!nft && Out.zero(c, C_AMOUNT)) return;
        market.put(key, old, c);
    }

    private void withdrawn() {
        if (!shape(4, 2) || !fits(topic(1), 20) || !fits(topic(2), 20) || !fits(topic(3), 20) || !upTo(word(0), 2)) return;
        boolean nft = last(word(0)) == NFT;
        Bytes key = balanceKey(word(1), nft);
        byte[] old = market.get(key);
        if (old == null) return;
        int order = Arrays.compareUnsigned(old, C_AMOUNT, C_AMOUNT + 32, v, word(1), word(1) + 32);
        if (nft || order <= 0) {
            market.put(key, old, null);
            return;
        }
        byte[] c = old.clone();
        Out.subtract(c, C_AMOUNT, v, word(1));
        market.put(key, old, c);
    }

    // ---- assets

    private Bytes assetKey(int at) {
        byte[] k = new byte[21];
        k[0] = ASSETS;
        copy(at, k, 1, 20);
        return Bytes.wrap(k);
    }

    private void assetSet() {
        if (!atLeast(3, 8) || !fits(topic(1), 20) || !fits(topic(2), 1)) return;
        Bytes key = assetKey(topic(1) + 12);
        byte[] old = market.get(key);
        int symbol = data + (int) small(word(6)), name = data + (int) small(word(7));
        int ns = (int) small(symbol), nn = (int) small(name);
        byte[] probed = old == null ? new byte[4] : Arrays.copyOfRange(old, probed(old), old.length);
        byte[] a = new byte[A_END + 2 + ns + nn + probed.length];
        if (old != null) System.arraycopy(old, A_OPEN, a, A_OPEN, 32);
        a[A_KIND] = last(word(0));
        a[A_LANE] = last(topic(2));
        a[A_ALLOWED] = last(word(1));
        a[A_DECIMALS] = last(word(2));
        copy(word(3), a, A_MIN, 32);
        copy(word(4), a, A_MAX_DEAL, 32);
        copy(word(5), a, A_MAX_OPEN, 32);
        a[A_END] = (byte) ns;
        copy(symbol + 32, a, A_END + 1, ns);
        a[A_END + 1 + ns] = (byte) nn;
        copy(name + 32, a, A_END + 2 + ns, nn);
        System.arraycopy(probed, 0, a, A_END + 2 + ns + nn, probed.length);
        market.put(key, old, a);
    }

    private void openRaw() {
        if (!shape(2, 1) || !fits(topic(1), 20)) return;
        Bytes key = assetKey(topic(1) + 12);
        byte[] old = market.get(key);
        if (old == null) return;
        byte[] a = old.clone();
        copy(word(0), a, A_OPEN, 32);
        market.put(key, old, a);
    }

    /** What a token answered: the four unions go on as they are. */
    void probe() {
        block();
        varint(); // index of the log
        Bytes key = assetKey(take(20));
        byte[] old = market.get(key);
        if (old == null) return;
        int at = probed(old);
        byte[] a = Arrays.copyOf(old, at + v.length - pos);
        copy(pos, a, at, v.length - pos);
        market.put(key, old, a);
    }
}
