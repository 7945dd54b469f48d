package sparkstore.brokerj.service;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.SingleEntry;

/**
 * Requests that go to the service in one frame, BATCH: their numbers follow one another, and each puts
 * a message on the same queue, or takes one off. The service decides them together and answers them
 * together, but each by itself: it has its number, its record and, if it is refused, its refusal.
 *
 * <p>So a run is nothing but how requests were sent. What of it is not decided when the connection is
 * lost is sent again as it falls: in other runs, or without one that was withdrawn meanwhile.
 */
final class RequestRun implements Frame {
    /** As much as the service reads at once: a longer frame would only be decided later. */
    private static final int MAX_BYTES = 256 * 1024;

    private final Request first;
    private final List<SingleEntry> entries = new ArrayList<>();
    private final int maxBytes;
    private int bytes;

    /**
     * @param first that {@link #isBegunBy}
     * @param maxFrameBytes how long a frame may be
     */
    RequestRun(Request first, int maxFrameBytes) {
        this.first = first;
        maxBytes = Math.min(MAX_BYTES, maxFrameBytes);
        bytes = first.single().bytesAroundEach() + first.single().bytesOfEach();
        entries.add(first.single());
    }

    /** Can the two go in one frame, if it has the room? */
    static boolean isBegunBy(Request first, Request second) {
        return first.single() != null && second.single() != null
                && second.number == first.number + 1 && first.single().isLike(second.single());
    }

    /** Take the request that is next in order into the frame; false: it does not belong there. */
    boolean take(Request next) {
        SingleEntry entry = next.single();
        if (entry == null || next.number != first.number + entries.size()
                || entries.size() == Frames.MAX_BATCH || !entry.isLike(entries.get(0))
                || bytes + entry.bytesOfEach() > maxBytes) {
            return false;
        }
        bytes += entry.bytesOfEach();
        entries.add(entry);
        return true;
    }

    @Override
    public void writeTo(FrameChannel to) throws IOException {
        byte[] head = SingleEntry.headOfEach(entries);
        int contentBytes = 0;
        if (entries.get(0).hasContent()) {
            for (SingleEntry entry : entries) {
                contentBytes += SingleEntry.CONTENT_HEAD.length + entry.contentBytes();
            }
        }
        to.write(Frames.lead(Frames.BATCH, first.number, 4, head.length + contentBytes));
        to.write(head);
        if (contentBytes > 0) {
            for (SingleEntry entry : entries) {
                to.write(SingleEntry.CONTENT_HEAD);
                to.write(entry.packed(), entry.contentFrom(), entry.contentBytes());
            }
        }
    }
}
