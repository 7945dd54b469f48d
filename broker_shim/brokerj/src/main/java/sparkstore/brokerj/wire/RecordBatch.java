package sparkstore.brokerj.wire;

import java.util.Arrays;

/**
 * Packed records that shall become true together, with the place where each one ends, so that they
 * can be sent in parts without being packed again. Configured objects are kept apart, behind the
 * others: they cannot be a part of their own.
 */
public final class RecordBatch {
    private static final int FIRST_BYTES = 512;

    private final Packer packer = new Packer(FIRST_BYTES);
    private final Packer objects = new Packer(0);
    private int[] ends = new int[4];
    private int entryCount;
    private int objectCount;
    private SingleEntry.Place firstPlace;

    private RecordBatch end() {
        if (entryCount == ends.length) {
            ends = Arrays.copyOf(ends, 2 * entryCount);
        }
        ends[entryCount++] = packer.size();
        return this;
    }

    public RecordBatch configured(String category, String key, String detail) {
        Records.configured(objects, category, key, detail);
        objectCount++;
        return this;
    }

    public RecordBatch unconfigured(String category, String key) {
        Records.unconfigured(objects, category, key);
        objectCount++;
        return this;
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
        return end(Records.DEQUEUED, queue, messageId, packer.size());
    }

    public RecordBatch enqueued(String queue, long messageId, byte[] header, byte[] body) {
        int content = Records.enqueued(packer, queue, messageId, header, body);
        return end(Records.ENQUEUED, queue, messageId, content);
    }

    private RecordBatch end(int kind, String queue, long messageId, int content) {
        if (entryCount == 0) {
            firstPlace = new SingleEntry.Place(kind, queue, messageId, content);
        }
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

    public int count() {
        return entryCount + objectCount;
    }

    /** Records that are no configured objects. */
    public int entryCount() {
        return entryCount;
    }

    public int size() {
        return packer.size() + objects.size();
    }

    /**
     * What the only record of this does, if that is to put a message on a queue or to take it off;
     * else null.
     *
     * @param array what {@link #toArray} gave
     */
    public SingleEntry single(byte[] array) {
        boolean isSingle = firstPlace != null && count() == 1;
        return isSingle ? new SingleEntry(firstPlace, array, array.length - packer.size()) : null;
    }

    /** All records as one MessagePack array. */
    public byte[] toArray() {
        byte[] last = objects.toBytes();
        return array(count(), 0, packer.size(), last);
    }

    /** The configured objects as one MessagePack array. */
    public byte[] objects() {
        return array(objectCount, 0, 0, objects.toBytes());
    }

    /** The records [first, end) that are no configured objects as one MessagePack array. */
    public byte[] entries(int first, int end) {
        int from = first == 0 ? 0 : ends[first - 1];
        int to = end == 0 ? 0 : ends[end - 1];
        return array(end - first, from, to, new byte[0]);
    }

    private byte[] array(int length, int from, int to, byte[] more) {
        byte[] packed = packer.toBytes();
        return new Packer(to - from + more.length + 5).array(length)
                .append(packed, from, to - from).append(more, 0, more.length).toBytes();
    }

    /** How many records from {@code first} on fit in {@code bytes}; at least one, to go on. */
    public int fitting(int first, int bytes, int maxCount) {
        int from = first == 0 ? 0 : ends[first - 1];
        int end = first + 1;
        while (end < entryCount && end - first < maxCount && ends[end] - from <= bytes) {
            end++;
        }
        return end;
    }
}
