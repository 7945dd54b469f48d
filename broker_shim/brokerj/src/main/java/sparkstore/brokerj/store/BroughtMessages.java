package sparkstore.brokerj.store;

import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.TransactionLogResource;
import sparkstore.brokerj.service.StoreClient;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * The messages that one request puts on queues, or stages: what of them it has to bring, and what
 * they are told when it is sent and decided. Used by one thread until then.
 */
final class BroughtMessages {
    /** What a record takes besides metadata and content, about. */
    private static final int RECORD_BYTES = 128;

    private final SparkStoreMessageStore store;
    private final StoreSession session;
    private final RecordBatch batch;
    private final boolean isLarge;
    /** Messages of ours, and how the service keeps them once the request is durable. */
    private final Map<SparkStoredMessage<?>, Keeping.Kept> brought = new IdentityHashMap<>(2);
    private StoreClient.Pieces pieces;

    /** @param all every message that may be brought; too many for a frame go ahead of it */
    BroughtMessages(
            SparkStoreMessageStore store, RecordBatch batch, List<EnqueueableMessage<?>> all) {
        this.store = store;
        this.session = store.session();
        this.batch = batch;
        isLarge = isLarge(all);
    }

    /** Would all messages fill more than half of a frame? Then their contents go ahead of it. */
    private boolean isLarge(List<EnqueueableMessage<?>> messages) {
        long bytes = 0;
        for (EnqueueableMessage<?> message : messages) {
            bytes += bytes(message);
        }
        return !session.client().fitsOneFrame(2 * bytes);
    }

    /** Of a message's record, about: metadata are in it twice, encoded and as columns. */
    private static long bytes(EnqueueableMessage<?> message) {
        StoredMessage<?> stored = message.getStoredMessage();
        return RECORD_BYTES + 2L * stored.getMetadataSize() + stored.getContentSize();
    }

    /**
     * @param kept how the service keeps it then: a branch only stages it, so that its first piece
     *     has the header by which it is read until the branch is decided
     */
    void enqueue(TransactionLogResource queue, EnqueueableMessage<?> message, Keeping.Kept kept) {
        String name = session.queueName(queue.getId(), queue.getName());
        SparkStoredMessage<?> stored = store.ours(message);
        boolean isBrought = brought.put(stored, kept) != null;
        SparkStoredMessage.Brought bring = stored.enqueue(message, isBrought);
        byte[] body = bring.body();
        if (body != null && isLarge && body.length > StoreClient.PIECE_BYTES) {
            byte[] header = kept == Keeping.Kept.STAGED ? bring.header() : null;
            pieces().send(message.getMessageNumber(), header, body);
            body = null;
        }
        batch.enqueued(name, message.getMessageNumber(), bring.header(), body);
    }

    /** A branch too large for a frame brings each message ahead, staged by a request of its own. */
    void stage(EnqueueableMessage<?> message) {
        if (!(message.getStoredMessage() instanceof SparkStoredMessage<?> stored)) {
            return;  // of another store, which keeps it: as the broker's own stores do
        }
        SparkStoredMessage.Brought bring = stored.prepare(message);
        if (bring == null || brought.put(stored, Keeping.Kept.STAGED) != null) {
            return;
        }
        if (isLarge || bring.body().length > StoreClient.PIECE_BYTES) {
            pieces().send(message.getMessageNumber(), bring.header(), bring.body());
        } else {
            batch.content(message.getMessageNumber(), bring.header(), bring.body());
        }
    }

    private StoreClient.Pieces pieces() {
        if (pieces == null) {
            pieces = session.client().newPieces();
        }
        return pieces;
    }

    /** Send the request, given the pieces that went ahead of it, or null; then {@link #decided}. */
    CompletableFuture<Void> send(Function<StoreClient.Pieces, CompletableFuture<Void>> request) {
        session.changing();
        brought.keySet().forEach(message -> message.keeping().sent());
        try {
            return request.apply(pieces);
        } catch (RuntimeException failure) {
            decided(false);
            abandon();
            throw failure;
        }
    }

    /** The request will not be sent. */
    void abandon() {
        if (pieces != null) {
            pieces.abandon();
            pieces = null;
        }
    }

    void decided(boolean isDurable) {
        brought.forEach((message, kept) -> message.keeping().decided(isDurable ? kept : null));
    }
}
