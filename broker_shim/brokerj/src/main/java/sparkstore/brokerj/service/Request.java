package sparkstore.brokerj.service;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.SingleEntry;

/** A request: decided once by the service, whatever is lost on the way. */
final class Request extends Outgoing {
    /** Completed by the reading thread, in the order of the numbers. */
    final CompletableFuture<Void> decided = new CompletableFuture<>();
    final Group group;
    boolean isAnswered;
    boolean isWithdrawn;
    private final byte[] nothing;
    private final SingleEntry single;

    /** A part of a group, which means nothing by itself. */
    Request(int type, int elementCount, int restBytes, Supplier<byte[]> rest, Group group) {
        this(type, elementCount, restBytes, rest, group, null, null);
    }

    /** Records that become true together. */
    static Request records(byte[] records, SingleEntry single, Group group, byte[] nothing) {
        return new Request(
                Frames.DO, 1, records.length, () -> records, group, nothing, single);
    }

    /**
     * @param group what it belongs to, null if it stands alone
     * @param nothing packed elements with which the request would change nothing; null if it means
     *     nothing by itself
     */
    Request(int type, int elementCount, int restBytes, Supplier<byte[]> rest, Group group,
            byte[] nothing) {
        this(type, elementCount, restBytes, rest, group, nothing, null);
    }

    private Request(int type, int elementCount, int restBytes, Supplier<byte[]> rest, Group group,
            byte[] nothing, SingleEntry single) {
        super(type, elementCount, restBytes, rest);
        this.group = group;
        this.nothing = nothing;
        this.single = single;
    }

    /**
     * What it does, if it can go to the service in one frame with others; null if it cannot: it is
     * something else, belongs to a group, or was withdrawn.
     */
    SingleEntry single() {
        return isWithdrawn || group != null ? null : single;
    }

    /**
     * Make it a request that changes nothing: its number stays in its place. Only for one that is
     * known not to have been decided. A part of a group stays as it is, which means nothing.
     *
     * @return by how many bytes it became shorter
     */
    int withdraw() {
        if (isWithdrawn || nothing == null) {
            return 0;
        }
        int before = restBytes();
        replace(nothing);
        isWithdrawn = true;
        return before - restBytes();
    }
}
