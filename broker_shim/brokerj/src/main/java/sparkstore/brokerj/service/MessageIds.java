package sparkstore.brokerj.service;

import java.util.concurrent.CompletableFuture;

/**
 * Message ids in blocks that the service reserves durably before it names them.
 *
 * <p>Contract, point 5: unique and rising across restarts of broker and service; gaps are fine. The
 * next block is asked for when half of one is used, so nobody waits for one as long as the service
 * answers in time.
 */
public final class MessageIds {
    static final int BLOCK = 10_000;

    private final StoreClient client;
    private long next;
    private long end;
    private CompletableFuture<Long> following;

    public MessageIds(StoreClient client) {
        this.client = client;
    }

    /** An id that nobody else ever gets. */
    public synchronized long next() {
        if (next == end) {
            CompletableFuture<Long> block = following == null ? client.reserveIds(BLOCK) : following;
            following = null;
            next = Failures.await(block);
            end = next + BLOCK;
        } else if (following == null && end - next < BLOCK / 2) {
            following = client.reserveIds(BLOCK);
        }
        return next++;
    }
}
