package com.lienstream.bench;

/** Rows of fixed layouts, edited in place, and the messages of the entity topics that they make. */
final class Rows {
    private Rows() { }

    // Tables; the number is the first byte of a key.
    static final int DEALS = 0, BIDS = 1, BALANCES = 2, ASSETS = 3, UNDO = 4;
    static final String[] TABLES = {"deal", "bid", "balance", "asset"}; // those with a topic

    static final int LISTED = 0, FUNDED = 1, RECLAIMED = 2, CLAIMED = 3, CANCELLED = 4; // states of deals
    static final int OPEN = 0, WITHDRAWN = 1, ACCEPTED = 2; // and of bids
    static final int NFT = 2; // a kind of balance

    // A deal's row: the second part is there once it is funded, the third once it has ended.
    static final int D_STATE = 0, D_KIND = 1, D_LANE = 2, D_FUNDED = 3, D_BIDS = 4, D_TERM = 8, D_FEE_BPS = 12, D_EXPIRY = 16, D_LISTED_AT = 24,
        D_AMOUNT = 32, D_CAP = 64, D_MIN = 80, D_BORROWER = 96, D_TOKEN = 116, D_TERMS = 136, D_TX = 168, D_END = 200,
        F_LENDER = 200, F_PRICE = 220, F_FEE = 236, F_AT = 252, F_EXPIRY = 260, F_GRACE = 268, F_TX = 276, F_END = 308, S_TX = 308, S_END = 340;
    static final int B_STATE = 0, B_LENDER = 1, B_PRICE = 21, B_EXPIRY = 37, B_PLACED = 45, B_TERMS = 53, B_TX = 85, B_END = 117; // a bid's
    static final int C_KIND = 0, C_AMOUNT = 1, C_END = 33; // a balance's
    // An asset's; behind it symbol and name, each behind its length, and what was probed, as in the message.
    static final int A_OPEN = 0, A_KIND = 32, A_LANE = 33, A_ALLOWED = 34, A_DECIMALS = 35, A_MIN = 36, A_MAX_DEAL = 68, A_MAX_OPEN = 100, A_END = 132;

    /** Where the part of an asset begins that was probed. */
    static int probed(byte[] a) {
        int name = A_END + 1 + (a[A_END] & 0xff);
        return name + 1 + (a[name] & 0xff);
    }

    /** The key of a row's message. */
    static byte[] messageKey(Out out, byte[] k) {
        switch (k[0]) {
            case DEALS: return Out.decimal(k, 2, k[1]);
            case BIDS: return Out.decimal(k, 3 + k[1], k[2 + k[1]]);
            case BALANCES:
                out.reset();
                out.hex(k, 1, 20);
                out.put((byte) ':');
                out.hex(k, 21, 20);
                if (k.length > 41) {
                    out.put((byte) ':');
                    out.bytes(Out.decimal(k, 41, 32));
                }
                return out.copy();
            default:
                out.reset();
                out.hex(k, 1, 20);
                return out.copy();
        }
    }

    /** The message of a row, as of a block. */
    static byte[] message(Out o, byte[] k, byte[] r, Input at) {
        o.reset();
        o.put((byte) 0);
        o.integer(10 + k[0]); // the schema's ID
        switch (k[0]) {
            case DEALS -> deal(o, k, r);
            case BIDS -> bid(o, k, r);
            case BALANCES -> {
                o.bytes(k, 1, 20);
                o.bytes(k, 21, 20);
                o.varint(r[C_KIND]);
                o.number(r, C_AMOUNT, 32);
            }
            default -> asset(o, k, r);
        }
        o.varint(at.number);
        o.bytes(at.hash, 0, 32);
        o.varint(at.time);
        return o.copy();
    }

    private static void deal(Out o, byte[] k, byte[] r) {
        o.number(k, 2, k[1]);
        o.bytes(r, D_BORROWER, 20);
        o.varint(r[D_KIND]);
        o.varint(r[D_LANE]);
        o.varint(r[D_STATE]);
        o.bytes(r, D_TOKEN, 20);
        o.number(r, D_AMOUNT, 32);
        o.number(r, D_CAP, 16);
        o.number(r, D_MIN, 16);
        o.varint(Out.getInt(r, D_TERM) & 0xffffffffL);
        o.varint(Out.getInt(r, D_FEE_BPS));
        o.varint(Out.getLong(r, D_EXPIRY));
        o.varint(Out.getLong(r, D_LISTED_AT));
        o.bytes(r, D_TERMS, 32);
        o.bytes(r, D_TX, 32);
        if (r[D_FUNDED] != 0) {
            o.some();
            o.bytes(r, F_LENDER, 20);
            o.some();
            o.number(r, F_PRICE, 16);
            o.some();
            o.number(r, F_FEE, 16);
            o.some();
            o.varint(Out.getLong(r, F_AT));
            o.some();
            o.varint(Out.getLong(r, F_EXPIRY));
            o.some();
            o.varint(Out.getLong(r, F_GRACE));
            o.some();
            o.bytes(r, F_TX, 32);
        } else {
            for (int i = 0; i < 7; i++) o.none();
        }
        if (r.length == S_END) {
            o.some();
            o.bytes(r, S_TX, 32);
        } else {
            o.none();
        }
        o.varint(Out.getInt(r, D_BIDS));
    }

    private static void bid(Out o, byte[] k, byte[] r) {
        o.number(k, 3 + k[1], k[2 + k[1]]);
        o.number(k, 2, k[1]);
        o.bytes(r, B_LENDER, 20);
        o.number(r, B_PRICE, 16);
        o.varint(Out.getLong(r, B_EXPIRY));
        o.varint(Out.getLong(r, B_PLACED));
        o.varint(r[B_STATE]);
        o.bytes(r, B_TERMS, 32);
        o.bytes(r, B_TX, 32);
    }

    private static void asset(Out o, byte[] k, byte[] r) {
        int symbol = r[A_END] & 0xff, name = A_END + 1 + symbol, probed = probed(r);
        o.bytes(k, 1, 20);
        o.varint(symbol);
        o.bytes(r, A_END + 1, symbol);
        o.varint(r[name] & 0xff);
        o.bytes(r, name + 1, r[name] & 0xff);
        o.varint(r[A_DECIMALS] & 0xff);
        o.varint(r[A_KIND]);
        o.varint(r[A_LANE]);
        o.put(r[A_ALLOWED]);
        o.number(r, A_MIN, 32);
        o.number(r, A_MAX_DEAL, 32);
        o.number(r, A_MAX_OPEN, 32);
        o.number(r, A_OPEN, 32);
        o.bytes(r, probed, r.length - probed);
    }
}
