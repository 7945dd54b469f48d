package sparkstore.brokerj.wire;

import java.util.Arrays;

/**
 * Packed records that shall become true together, with the place where each one ends, so that they
 * can be sent in parts without being packed again.
 */
public final class RecordBatch {
    private static final int FIRST_BYTES = 512;

    private final Packer packer = new Packer(FIRST_BYTES);
    private int[] ends = new int[4];
    private int count;
    private boolean hasConfigured;

    /** Where the next record is packed; {@link #end} must follow it. */
    public Packer begin() {
        return packer;
    }

    /** The record that was packed last is whole. */
    public RecordBatch end() {
        if (count == ends.length) {
            ends = Arrays.copyOf(ends, 2 * count);
        }
        ends[count++] = packer.size();
        return this;
    }

    public RecordBatch configured(String category, String key, String detail) {
        Records.configured(packer, category, key, detail);
        hasConfigured = true;
        return end();
    }

    public RecordBatch unconfigured(String category, String key) {
        Records.unconfigured(packer, category, key);
        hasConfigured = true;
        return end();
    }

    public RecordBatch created(String queue, String detail) {
        Records.created(packer, queue, detail);
        return end();
    }

    public RecordBatch destroyed(String queue) {
        Records.destroyed(packer, queue);
        return end();
    }

    public RecordBatch dequeued(String queue, long messageId) {
        Records.dequeued(packer, queue, messageId);
        return end();
    }

    public RecordBatch enqueued(String queue, long messageId, byte[] header, byte[] body) {
        Records.enqueued(packer, queue, messageId, header, body);
        return end();
    }

    /** Whole content of a message that stays on no queue; its header comes with it. */
    public RecordBatch content(long messageId, byte[] header, byte[] body) {
        Records.content(packer, messageId, header, 0, body, body.length);
        return end();
    }

    public RecordBatch stagingAborted(long messageId) {
        Records.stagingAborted(packer, messageId);
        return end();
    }

    /** Does it hold configured objects, which a transaction in parts may not? */
    public boolean hasConfigured() {
        return hasConfigured;
    }

    public int count() {
        return count;
    }

    public int size() {
        return packer.size();
    }

    /** All records as one MessagePack array. */
    public byte[] toArray() {
        return array(0, count);
    }

    /** The records [first, end) as one MessagePack array. */
    public byte[] array(int first, int end) {
        int from = first == 0 ? 0 : ends[first - 1];
        int to = end == 0 ? 0 : ends[end - 1];
        byte[] packed = packer.toBytes();
        return new Packer(to - from + 5).array(end - first).append(packed, from, to - from).toBytes();
    }

    /** How many records from {@code first} on fit in {@code bytes}; at least one, to go on. */
    public int fitting(int first, int bytes, int maxCount) {
        int from = first == 0 ? 0 : ends[first - 1];
        int end = first + 1;
        while (end < count && end - first < maxCount && ends[end] - from <= bytes) {
            end++;
        }
        return end;
    }
}
