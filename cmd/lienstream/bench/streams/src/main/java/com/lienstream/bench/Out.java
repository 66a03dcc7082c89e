package com.lienstream.bench;

import java.lang.invoke.*;
import java.math.BigInteger;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Bytes that are appended to, Avro's primitives, and numbers in byte arrays. */
final class Out {
    private static final VarHandle LONG = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.BIG_ENDIAN);
    private static final VarHandle INT = MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.BIG_ENDIAN);
    private byte[] b = new byte[1024];
    private int n;

    static long getLong(byte[] b, int at) { return (long) LONG.get(b, at); }
    static void putLong(byte[] b, int at, long x) { LONG.set(b, at, x); }
    static int getInt(byte[] b, int at) { return (int) INT.get(b, at); }
    static void putInt(byte[] b, int at, int x) { INT.set(b, at, x); }

    void reset() { n = 0; }
    byte[] copy() { return Arrays.copyOf(b, n); }

    private void room(int more) { if (n + more > b.length) b = Arrays.copyOf(b, 2 * (n + more)); }

    /** The branches of a union with null. */
    void some() { put((byte) 2); }
    void none() { put((byte) 0); }

    void put(byte x) {
        room(1);
        b[n++] = x;
    }

    void integer(int x) {
        room(4);
        putInt(b, n, x);
        n += 4;
    }

    void bytes(byte[] from) { bytes(from, 0, from.length); }

    void bytes(byte[] from, int at, int length) {
        room(length);
        System.arraycopy(from, at, b, n, length);
        n += length;
    }

    void varint(long x) {
        room(10);
        x = x << 1 ^ x >> 63;
        while ((x & ~0x7fL) != 0) {
            b[n++] = (byte) (x & 0x7f | 0x80);
            x >>>= 7;
        }
        b[n++] = (byte) x;
    }

    void hex(byte[] from, int at, int length) {
        put((byte) '0');
        put((byte) 'x');
        for (int i = at; i < at + length; i++) {
            put((byte) "0123456789abcdef".charAt(from[i] >> 4 & 15));
            put((byte) "0123456789abcdef".charAt(from[i] & 15));
        }
    }

    /** A big-endian number as an Avro string of decimal digits. */
    void number(byte[] from, int at, int length) {
        byte[] d = decimal(from, at, length);
        varint(d.length);
        bytes(d, 0, d.length);
    }

    static byte[] decimal(byte[] from, int at, int length) {
        while (length > 0 && from[at] == 0) {
            at++;
            length--;
        }
        if (length > 8 || length == 8 && from[at] < 0)
            return new BigInteger(1, from, at, length).toString().getBytes(StandardCharsets.ISO_8859_1);
        long x = 0;
        for (int i = 0; i < length; i++) x = x << 8 | from[at + i] & 0xff;
        int digits = 1;
        for (long y = x; y >= 10; y /= 10) digits++;
        byte[] d = new byte[digits];
        for (int i = digits - 1; i >= 0; i--) {
            d[i] = (byte) ('0' + x % 10);
            x /= 10;
        }
        return d;
    }

    // 256 bits, big-endian

    static boolean zero(byte[] a, int at) {
        return (getLong(a, at) | getLong(a, at + 8) | getLong(a, at + 16) | getLong(a, at + 24)) == 0;
    }

    /** a += b; true: it overflowed. */
    static boolean add(byte[] a, int at, byte[] b, int bt) {
        long carry = 0;
        for (int i = 24; i >= 0; i -= 8) {
            long x = getLong(a, at + i), y = getLong(b, bt + i), s = x + y, t = s + carry;
            carry = Long.compareUnsigned(s, x) < 0 || Long.compareUnsigned(t, s) < 0 ? 1 : 0;
            putLong(a, at + i, t);
        }
        return carry != 0;
    }

    /** a -= b, where a is not less. */
    static void subtract(byte[] a, int at, byte[] b, int bt) {
        long borrow = 0;
        for (int i = 24; i >= 0; i -= 8) {
            long x = getLong(a, at + i), y = getLong(b, bt + i), s = x - y, t = s - borrow;
            borrow = Long.compareUnsigned(x, y) < 0 || Long.compareUnsigned(s, borrow) < 0 ? 1 : 0;
            putLong(a, at + i, t);
        }
    }
}
