package sparkstore.brokerj.wire;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * Reads the values of one frame's body, in order: the subset of MessagePack that {@link Packer}
 * writes, in any width.
 *
 * <p>Every length is checked against the bytes that are there before anything is allocated, so a
 * garbled frame costs a {@link ProtocolException}, never memory.
 */
public final class Unpacker {
    private final ByteBuffer body;

    /** @param body the frame's body; read from its position to its limit */
    public Unpacker(ByteBuffer body) {
        this.body = body;
    }

    /** How many elements the array that begins here has. */
    public int array() {
        int lead = lead();
        if ((lead & 0xf0) == 0x90) {
            return lead & 0x0f;
        }
        long count = switch (lead) {
            case 0xdc -> big(2);
            case 0xdd -> big(4);
            default -> throw unexpected("an array", lead);
        };
        return atMostRemaining(count);
    }

    public long integer() {
        int lead = lead();
        if (lead < 0x80) {
            return lead;
        }
        if (lead >= 0xe0) {
            return (byte) lead;
        }
        return switch (lead) {
            case 0xcc -> big(1);
            case 0xcd -> big(2);
            case 0xce -> big(4);
            case 0xcf, 0xd3 -> big(8);
            case 0xd0 -> (byte) big(1);
            case 0xd1 -> (short) big(2);
            case 0xd2 -> (int) big(4);
            default -> throw unexpected("an integer", lead);
        };
    }

    public boolean bool() {
        int lead = lead();
        if (lead != 0xc2 && lead != 0xc3) {
            throw unexpected("true or false", lead);
        }
        return lead == 0xc3;
    }

    /** Text; null for nil. */
    public String text() {
        int lead = lead();
        if (lead == 0xc0) {
            return null;
        }
        long length = (lead & 0xe0) == 0xa0 ? lead & 0x1f : switch (lead) {
            case 0xd9 -> big(1);
            case 0xda -> big(2);
            case 0xdb -> big(4);
            default -> throw unexpected("text", lead);
        };
        return new String(take(length), StandardCharsets.UTF_8);
    }

    /** Bytes; null for nil. */
    public byte[] binary() {
        int lead = lead();
        if (lead == 0xc0) {
            return null;
        }
        long length = switch (lead) {
            case 0xc4 -> big(1);
            case 0xc5 -> big(2);
            case 0xc6 -> big(4);
            default -> throw unexpected("bytes", lead);
        };
        return take(length);
    }

    /** Is nil next? If so it is read. */
    public boolean nil() {
        if (body.hasRemaining() && (body.get(body.position()) & 0xff) == 0xc0) {
            body.get();
            return true;
        }
        return false;
    }

    /** Is text next (and not an array)? Nothing is read. */
    public boolean textIsNext() {
        int lead = body.hasRemaining() ? body.get(body.position()) & 0xff : 0;
        return (lead & 0xe0) == 0xa0 || (lead >= 0xd9 && lead <= 0xdb);
    }

    /** Read one value of any kind and forget it. */
    public void skip() {
        int lead = lead();
        body.position(body.position() - 1);
        boolean isArray = (lead & 0xf0) == 0x90 || lead == 0xdc || lead == 0xdd;
        if (isArray) {
            for (int left = array(); left > 0; left--) {
                skip();
            }
        } else if (textIsNext()) {
            text();
        } else if (lead >= 0xc4 && lead <= 0xc6) {
            binary();
        } else if (lead == 0xc2 || lead == 0xc3) {
            bool();
        } else if (!nil()) {
            integer();
        }
    }

    private int lead() {
        if (!body.hasRemaining()) {
            throw new ProtocolException("the frame ends within a value");
        }
        return body.get() & 0xff;
    }

    private long big(int width) {
        if (body.remaining() < width) {
            throw new ProtocolException("the frame ends within a value");
        }
        return switch (width) {
            case 1 -> body.get() & 0xff;
            case 2 -> body.getShort() & 0xffff;
            case 4 -> body.getInt() & 0xffff_ffffL;
            default -> body.getLong();
        };
    }

    private byte[] take(long length) {
        byte[] taken = new byte[atMostRemaining(length)];
        body.get(taken);
        return taken;
    }

    private int atMostRemaining(long count) {
        if (count > body.remaining()) {
            throw new ProtocolException("a length of " + count + " in the last " + body.remaining()
                    + " bytes of a frame");
        }
        return (int) count;
    }

    private static ProtocolException unexpected(String wanted, int lead) {
        return new ProtocolException("%s was expected, not byte 0x%02x".formatted(wanted, lead));
    }
}
