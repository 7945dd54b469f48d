package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction;
import org.apache.qpid.server.store.TransactionLogResource;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.StoreClient;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * A transaction: collected here, sent as one request when it commits.
 *
 * <p>Contract, point 1: a message is written by the first transaction that enqueues it, in that
 * same request, once, however many queues it goes to. Point 2: {@link #commitTran} returns, and the
 * future of {@link #commitTranAsync} completes, only when the service has it on stable storage; the
 * futures of one store complete in the order of submission, by the one reading thread. Point 3: an
 * asynchronous commit is sent at once by the writing thread and needs no {@code get()} to get on;
 * what one socket read of the broker commits goes out together.
 *
 * <p>Inside a transaction enqueues go before dequeues, so that a message which moves from one queue
 * to another is never on none. Used by one thread, as the broker does.
 */
final class SparkStoreTransaction implements Transaction {
    /** What a record takes besides metadata and content, about. */
    private static final int RECORD_BYTES = 128;

    private record Enqueue(
            TransactionLogResource queue, EnqueueableMessage<?> message, EntryRecord entry) {
    }

    private record Prepared(String key, String detail, List<EnqueueableMessage<?>> messages) {
    }

    private final SparkStoreMessageStore store;
    private final StoreSession session;
    private final List<Enqueue> enqueues = new ArrayList<>(1);
    private final List<MessageEnqueueRecord> dequeues = new ArrayList<>(1);
    private final List<Prepared> prepared = new ArrayList<>(0);
    private final List<String> ended = new ArrayList<>(0);
    /** Messages of ours in this transaction, and how the service keeps them once it is durable. */
    private final Map<SparkStoredMessage<?>, Keeping.Kept> brought = new IdentityHashMap<>(2);
    private StoreClient.Pieces pieces;

    SparkStoreTransaction(SparkStoreMessageStore store) {
        this.store = store;
        this.session = store.session();
    }

    @Override
    public MessageEnqueueRecord enqueueMessage(
            TransactionLogResource queue, EnqueueableMessage message) {
        store.checkOpen();
        EntryRecord entry = new EntryRecord(queue.getId(), message.getMessageNumber());
        enqueues.add(new Enqueue(queue, message, entry));
        return entry;
    }

    @Override
    public void dequeueMessage(MessageEnqueueRecord entry) {
        store.checkOpen();
        dequeues.add(entry);
    }

    @Override
    public void commitTran() {
        Failures.await(commit(true));
    }

    @Override
    public <X> CompletableFuture<X> commitTranAsync(X value) {
        return commit(false).thenApply(done -> value);
    }

    @Override
    public void abortTran() {
        store.checkOpen();
        forget();
    }

    /** Contract, point 11: the branch and its messages are durable when this commits. */
    @Override
    public StoredXidRecord recordXid(long format, byte[] globalId, byte[] branchId,
            EnqueueRecord[] enqueueRecords, DequeueRecord[] dequeueRecords) {
        store.checkOpen();
        StoredXid xid = new StoredXid(format, globalId, branchId);
        List<EnqueueableMessage<?>> messages = new ArrayList<>();
        for (EnqueueRecord enqueue : enqueueRecords) {
            messages.add(enqueue.getMessage());
        }
        String detail = PreparedBranch.of(enqueueRecords, dequeueRecords).detail();
        prepared.add(new Prepared(StoredXid.key(xid), detail, messages));
        return xid;
    }

    @Override
    public void removeXid(StoredXidRecord xid) {
        store.checkOpen();
        ended.add(StoredXid.key(xid));
    }

    private CompletableFuture<Void> commit(boolean isUrgent) {
        store.checkOpen();
        RecordBatch batch;
        try {
            batch = batch();
        } catch (RuntimeException failure) {
            abandonPieces();
            throw failure;
        }
        if (batch.count() == 0) {
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<Void> decided = send(batch, isUrgent);
        Map<String, String> xids = xids();
        var messages = new IdentityHashMap<>(brought);
        List<Enqueue> entered = List.copyOf(enqueues);
        List<MessageEnqueueRecord> left = List.copyOf(dequeues);
        forget();
        return decided.whenComplete((done, failure) -> {
            messages.forEach((message, kept) ->
                    message.keeping().decided(failure == null ? kept : null));
            if (failure == null) {
                entered.forEach(each -> store.ours(each.message()).keeping().entered(each.entry()));
                left.forEach(store::left);
                session.remember(ConfiguredObjects.XID, xids);
            }
        });
    }

    private CompletableFuture<Void> send(RecordBatch batch, boolean isUrgent) {
        session.changing();
        brought.keySet().forEach(message -> message.keeping().sent());
        try {
            return session.client().submit(batch, pieces, isUrgent);
        } catch (RuntimeException failure) {
            brought.keySet().forEach(message -> message.keeping().decided(null));
            abandonPieces();
            throw failure;
        }
    }

    private void abandonPieces() {
        if (pieces != null) {
            pieces.abandon();
            pieces = null;
        }
    }

    private Map<String, String> xids() {
        Map<String, String> changes = new HashMap<>();
        prepared.forEach(branch -> changes.put(branch.key(), branch.detail()));
        ended.forEach(key -> changes.put(key, null));
        return changes;
    }

    private RecordBatch batch() {
        RecordBatch batch = new RecordBatch();
        brought.clear();
        boolean isLarge = isLarge();
        for (Prepared branch : prepared) {
            branch.messages().forEach(message -> stage(batch, message, isLarge));
            batch.configured(ConfiguredObjects.XID, branch.key(), branch.detail());
        }
        for (Enqueue enqueue : enqueues) {
            enqueue(batch, enqueue.queue(), enqueue.message(), isLarge);
        }
        for (MessageEnqueueRecord entry : dequeues) {
            String queue = session.queueName(entry.getQueueId());
            if (queue != null) {  // else its queue was destroyed, and the entry with it
                store.leaving(entry.getMessageNumber());
                batch.dequeued(queue, entry.getMessageNumber());
            }
        }
        ended.forEach(key -> batch.unconfigured(ConfiguredObjects.XID, key));
        return batch;
    }

    /** Would all messages fill more than half of a frame? Then their contents go ahead of it. */
    private boolean isLarge() {
        long bytes = 0;
        for (Enqueue enqueue : enqueues) {
            bytes += bytes(enqueue.message());
        }
        for (Prepared branch : prepared) {
            for (EnqueueableMessage<?> message : branch.messages()) {
                bytes += bytes(message);
            }
        }
        return !session.client().fitsOneFrame(2 * bytes);
    }

    /** Of a message's record, about: metadata are in it twice, encoded and as columns. */
    private static long bytes(EnqueueableMessage<?> message) {
        StoredMessage<?> stored = message.getStoredMessage();
        return RECORD_BYTES + 2L * stored.getMetadataSize() + stored.getContentSize();
    }

    private void enqueue(RecordBatch batch, TransactionLogResource queue,
            EnqueueableMessage<?> message, boolean isLarge) {
        String name = session.queueName(queue.getId(), queue.getName());
        SparkStoredMessage<?> stored = store.ours(message);
        boolean isBrought = brought.put(stored, Keeping.Kept.ENQUEUED) != null;
        SparkStoredMessage.Brought bring = stored.enqueue(message, isBrought);
        byte[] body = bring.body();
        if (body != null && isLarge && body.length > StoreClient.PIECE_BYTES) {
            pieces().send(message.getMessageNumber(), null, body);
            body = null;
        }
        batch.enqueued(name, message.getMessageNumber(), bring.header(), body);
    }

    /** A branch too large for a frame brings each message ahead, staged by a request of its own. */
    private void stage(RecordBatch batch, EnqueueableMessage<?> message, boolean isLarge) {
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

    private void forget() {
        enqueues.clear();
        dequeues.clear();
        prepared.clear();
        ended.clear();
        brought.clear();
        pieces = null;
    }
}
