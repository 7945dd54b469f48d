package sparkstore.brokerj.wire;

import java.nio.ByteBuffer;

/**
 * The store protocol's frames, version 4: u32 length of what follows, big-endian; u8 type; then one
 * MessagePack array. broker_shim/service documents every frame; here are those that Broker-J uses.
 */
public final class Frames {
    public static final int VERSION = 4;

    public static final int HELLO = 1;
    public static final int DO = 2;
    public static final int OPEN = 3;
    public static final int ADD = 4;
    public static final int END = 5;
    public static final int FLUSH = 6;
    public static final int IDS = 7;
    public static final int LOAD = 8;
    public static final int RECOVER = 9;
    public static final int SIZE = 10;
    public static final int PIECE = 11;
    public static final int PREPARE = 22;
    public static final int DECIDE = 23;
    public static final int BATCH = 27;

    public static final int WELCOME = 129;
    public static final int DONE = 130;
    public static final int ANSWER = 131;
    public static final int FAILED = 132;
    public static final int GOODBYE = 133;

    /** Bytes of the length, which does not count itself. */
    public static final int LENGTH_BYTES = 4;
    /** Messages that one BATCH may name. */
    public static final int MAX_BATCH = 1_000;
    /** Longest frame that either side takes before WELCOME has named the limit. */
    public static final int MAX_FRAME_BYTES = 8 * 1024 * 1024;
    /** Length and type. */
    private static final int LEAD_BYTES = LENGTH_BYTES + 1;

    private Frames() {
    }

    /** A whole frame around a body that is packed already. */
    public static byte[] frame(int type, byte[] body) {
        return ByteBuffer.allocate(LEAD_BYTES + body.length)
                .putInt(1 + body.length).put((byte) type).put(body).array();
    }

    /**
     * What comes before the rest of a numbered frame's array: length, type, array head, number.
     *
     * @param type kind of frame
     * @param number of the request or read, the first element
     * @param elementCount elements of the array, the number among them
     * @param restBytes length of the packed other elements
     */
    public static byte[] lead(int type, long number, int elementCount, int restBytes) {
        byte[] head = new Packer(16).array(elementCount).integer(number).toBytes();
        return ByteBuffer.allocate(LEAD_BYTES + head.length)
                .putInt(1 + head.length + restBytes).put((byte) type).put(head).array();
    }

    /**
     * HELLO: who we are, and whose place we take, if anybody's.
     *
     * @param seen packed, what an earlier connection has seen of the root; null for the first
     */
    public static byte[] hello(String member, String incarnation, String host, String token,
            String formerHost, byte[] seen) {
        Packer body = new Packer(256).array(seen == null ? 7 : 8).integer(VERSION).text(member)
                .text(incarnation).text(host).bool(true).text(token)
                .text(formerHost == null || formerHost.isBlank() ? null : formerHost);
        if (seen != null) {
            body.append(seen, 0, seen.length);
        }
        return frame(HELLO, body.toBytes());
    }
}
