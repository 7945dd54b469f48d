package sparkstore.brokerj.store;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.store.Transaction.StoredXidRecord;

/**
 * Identity of an XA branch. Contract, point 11: equal by value.
 *
 * <pre>
 * packed   i32 format, big-endian; u8 length of the global id; global id; branch id
 * </pre>
 */
final class StoredXid implements StoredXidRecord {
    private static final HexFormat HEX = HexFormat.of();
    /** Of either id, in the store. */
    private static final int MAX_ID_BYTES = 64;
    private final long format;
    private final byte[] globalId;
    private final byte[] branchId;

    StoredXid(long format, byte[] globalId, byte[] branchId) {
        this.format = format;
        this.globalId = globalId.clone();
        this.branchId = branchId.clone();
    }

    /** The key that it is stored under: format, then both ids in hexadecimal. */
    static String key(StoredXidRecord xid) {
        return xid.getFormat() + ":" + HEX.formatHex(xid.getGlobalId()) + ":"
                + HEX.formatHex(xid.getBranchId());
    }

    static StoredXid of(String key) {
        String[] parts = key.split(":", -1);
        if (parts.length != 3) {
            throw new StoreException("'" + key + "' is not the key of an XA branch");
        }
        return new StoredXid(Long.parseLong(parts[0]), HEX.parseHex(parts[1]), HEX.parseHex(parts[2]));
    }

    static StoredXid unpacked(byte[] packed) {
        ByteBuffer bytes = ByteBuffer.wrap(packed);
        int format = bytes.getInt();
        byte[] globalId = new byte[Byte.toUnsignedInt(bytes.get())];
        bytes.get(globalId);
        byte[] branchId = new byte[bytes.remaining()];
        bytes.get(branchId);
        return new StoredXid(format, globalId, branchId);
    }

    /** As the store has it; only of one that it can have. */
    byte[] packed() {
        return ByteBuffer.allocate(Integer.BYTES + 1 + globalId.length + branchId.length)
                .putInt((int) format).put((byte) globalId.length).put(globalId).put(branchId)
                .array();
    }

    /** Can the store have a branch of this name? AMQP 0-10 allows larger formats, and empty ids. */
    boolean isStorable() {
        return 0 <= format && format <= Integer.MAX_VALUE
                && 1 <= globalId.length && globalId.length <= MAX_ID_BYTES
                && branchId.length <= MAX_ID_BYTES;
    }

    @Override
    public long getFormat() {
        return format;
    }

    @Override
    public byte[] getGlobalId() {
        return globalId.clone();
    }

    @Override
    public byte[] getBranchId() {
        return branchId.clone();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof StoredXid that && format == that.format
                && Arrays.equals(globalId, that.globalId) && Arrays.equals(branchId, that.branchId);
    }

    @Override
    public int hashCode() {
        return 31 * (31 * Long.hashCode(format) + Arrays.hashCode(globalId))
                + Arrays.hashCode(branchId);
    }
}
