package sparkstore.brokerj.wire;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Packs values as the store protocol wants them: the subset of MessagePack that sparkstore/core/codec.py
 * writes. Text is str, bytes are bin, what is absent is nil; no maps, floats or extensions.
 *
 * <p>The bytes are the same as those of Python's msgpack (shortest form of each value), which the
 * tests check against vectors written by it. For one thread at a time.
 */
public final class Packer {
    private byte[] bytes;
    private int size;

    /** @param capacity bytes to begin with; it grows as needed */
    public Packer(int capacity) {
        bytes = new byte[capacity];
    }

    /** How many bytes are packed. */
    public int size() {
        return size;
    }

    /** A copy of what is packed. */
    public byte[] toBytes() {
        return Arrays.copyOf(bytes, size);
    }

    /** Forget what is packed, keep the room. */
    public void clear() {
        size = 0;
    }

    /** Begin an array; its {@code count} elements are packed next. */
    public Packer array(int count) {
        if (count < 16) {
            return raw(0x90 | count);
        }
        return count < 0x10000 ? raw(0xdc).big(count, 2) : raw(0xdd).big(count, 4);
    }

    public Packer nil() {
        return raw(0xc0);
    }

    public Packer bool(boolean value) {
        return raw(value ? 0xc3 : 0xc2);
    }

    /** An integer, in the fewest bytes. */
    public Packer integer(long value) {
        if (value >= 0) {
            return positive(value);
        }
        if (value >= -32) {
            return raw((int) value & 0xff);
        }
        if (value >= Byte.MIN_VALUE) {
            return raw(0xd0).big(value, 1);
        }
        if (value >= Short.MIN_VALUE) {
            return raw(0xd1).big(value, 2);
        }
        return value >= Integer.MIN_VALUE ? raw(0xd2).big(value, 4) : raw(0xd3).big(value, 8);
    }

    private Packer positive(long value) {
        if (value < 0x80) {
            return raw((int) value);
        }
        if (value < 0x100) {
            return raw(0xcc).big(value, 1);
        }
        if (value < 0x10000) {
            return raw(0xcd).big(value, 2);
        }
        return value < 0x1_0000_0000L ? raw(0xce).big(value, 4) : raw(0xcf).big(value, 8);
    }

    /** An integer that may be absent. */
    public Packer integerOrNil(Long value) {
        return value == null ? nil() : integer(value);
    }

    /**
     * Text, or nil. Half of a surrogate pair, which UTF-8 cannot spell, becomes a question mark: a
     * header that a client garbled must not stop its message.
     */
    public Packer text(String value) {
        if (value == null) {
            return nil();
        }
        byte[] utf8 = value.getBytes(StandardCharsets.UTF_8);
        int length = utf8.length;
        if (length < 32) {
            raw(0xa0 | length);
        } else if (length < 0x100) {
            raw(0xd9).big(length, 1);
        } else if (length < 0x10000) {
            raw(0xda).big(length, 2);
        } else {
            raw(0xdb).big(length, 4);
        }
        return append(utf8, 0, length);
    }

    /** Bytes, or nil. */
    public Packer binary(byte[] value) {
        return value == null ? nil() : binary(value, 0, value.length);
    }

    /** A range of bytes. */
    public Packer binary(byte[] value, int offset, int length) {
        if (length < 0x100) {
            raw(0xc4).big(length, 1);
        } else if (length < 0x10000) {
            raw(0xc5).big(length, 2);
        } else {
            raw(0xc6).big(length, 4);
        }
        return append(value, offset, length);
    }

    /** Bytes that are packed already. */
    public Packer append(byte[] packed, int offset, int length) {
        room(length);
        System.arraycopy(packed, offset, bytes, size, length);
        size += length;
        return this;
    }

    private Packer raw(int value) {
        room(1);
        bytes[size++] = (byte) value;
        return this;
    }

    private Packer big(long value, int width) {
        room(width);
        for (int shift = (width - 1) * 8; shift >= 0; shift -= 8) {
            bytes[size++] = (byte) (value >>> shift);
        }
        return this;
    }

    private void room(int wanted) {
        if (bytes.length - size < wanted) {
            int grown = Math.max(bytes.length * 2, Math.addExact(size, wanted));
            bytes = Arrays.copyOf(bytes, grown);
        }
    }
}
