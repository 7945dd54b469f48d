package sparkstore.brokerj.wire;

import java.util.List;

/**
 * The only record of a request, if it puts a message on a queue or takes one off. Many of them about
 * one queue can be said by one frame, BATCH, in which each is still a request by itself.
 *
 * <p>Nothing is packed again for that: header and body lie in the request's own bytes, one after the
 * other, as the frame wants them.
 */
public final class SingleEntry {
    /** What comes before header and body of each message in BATCH: they are an array of two. */
    public static final byte[] CONTENT_HEAD = new Packer(1).array(2).toBytes();
    /** Bytes of an id, at most. */
    private static final int ID_BYTES = 9;
    /** Bytes in BATCH besides ids, contents and the name of the queue, at most, and of a letter. */
    private static final int HEAD_BYTES = 64;
    private static final int LETTER_BYTES = 3;

    /** @param content where header and body begin in what was packed; its end if there are none */
    record Place(int kind, String queue, long messageId, int content) {
    }

    private final Place place;
    private final byte[] packed;
    private final int from;

    /** @param shift how much further behind in {@code packed} everything is than the place says */
    SingleEntry(Place place, byte[] packed, int shift) {
        this.place = place;
        this.packed = packed;
        this.from = place.content() + shift;
    }

    /** Can one BATCH say this and the other? */
    public boolean isLike(SingleEntry other) {
        return place.kind() == other.place.kind() && place.queue().equals(other.place.queue());
    }

    /** Does it bring a header and a body, or nil for a body? */
    public boolean hasContent() {
        return place.kind() == Records.ENQUEUED;
    }

    /** The bytes that have header and body, packed, from {@link #contentFrom} on. */
    public byte[] packed() {
        return packed;
    }

    public int contentFrom() {
        return from;
    }

    public int contentBytes() {
        return hasContent() ? packed.length - Records.AFTER_CONTENT - from : 0;
    }

    /** By how many bytes, at most, it makes a BATCH longer. */
    public int bytesOfEach() {
        return ID_BYTES + (hasContent() ? CONTENT_HEAD.length + contentBytes() : 0);
    }

    /** How long, at most, a BATCH is besides what each of its messages adds. */
    public int bytesAroundEach() {
        return HEAD_BYTES + LETTER_BYTES * place.queue().length();
    }

    /**
     * What BATCH says before the contents, after its request number: the record, the ids, and the
     * head of the contents, or nil.
     *
     * @param all each like the first
     */
    public static byte[] headOfEach(List<SingleEntry> all) {
        SingleEntry first = all.get(0);
        Packer head = new Packer(first.bytesAroundEach() + ID_BYTES * all.size());
        Records.ofEach(head, first.place.kind(), first.place.queue());
        head.array(all.size());
        all.forEach(entry -> head.integer(entry.place.messageId()));
        return (first.hasContent() ? head.array(all.size()) : head.nil()).toBytes();
    }
}
