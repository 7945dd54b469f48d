package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.Transaction;
import org.apache.qpid.server.store.TransactionLogResource;
import org.apache.qpid.server.util.ConnectionScopedRuntimeException;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.Refused;
import sparkstore.brokerj.service.Withdrawn;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * A transaction: collected here, sent as one request when it commits.
 *
 * <p>Contract, point 1: a message is written by the first transaction that enqueues it, in that
 * same request, once, however many queues it goes to. Point 2: {@link #commitTran} returns, and the
 * future of {@link #commitTranAsync} completes, only when the service has it on stable storage; the
 * futures of one store complete in the order of submission, by the one reading thread. Point 3: an
 * asynchronous commit is sent at once, by its caller or in a burst by the writing thread, and needs no
 * {@code get()} to get on; what one socket read of the broker commits goes out together.
 *
 * <p>Inside a transaction enqueues go before dequeues, so that a message which moves from one queue
 * to another is never on none. Used by one thread, as the broker does.
 */
final class SparkStoreTransaction implements Transaction {

    private record Enqueue(
            TransactionLogResource queue, EnqueueableMessage<?> message, EntryRecord entry) {
    }

    private final SparkStoreMessageStore store;
    private final StoreSession session;
    private final List<Enqueue> enqueues = new ArrayList<>(1);
    private final List<MessageEnqueueRecord> dequeues = new ArrayList<>(1);
    private final List<Preparation> prepared = new ArrayList<>(0);
    private final List<String> ended = new ArrayList<>(0);

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

    /**
     * Contract, point 11: the branch and its messages are durable when this commits. The store keeps
     * it as a branch of its own; what it cannot keep so is a configured object
     * ({@link ObjectBranches}).
     */
    @Override
    public StoredXidRecord recordXid(long format, byte[] globalId, byte[] branchId,
            EnqueueRecord[] enqueueRecords, DequeueRecord[] dequeueRecords) {
        store.checkOpen();
        StoredXid xid = new StoredXid(format, globalId, branchId);
        prepared.add(new Preparation(xid, enqueueRecords.clone(), dequeueRecords.clone()));
        return xid;
    }

    /**
     * With what the branch was prepared to do, the transaction commits it; alone, it rolls the
     * branch back.
     */
    @Override
    public void removeXid(StoredXidRecord xid) {
        store.checkOpen();
        ended.add(StoredXid.key(xid));
    }

    private CompletableFuture<Void> commit(boolean isUrgent) {
        store.checkOpen();
        if (ended.stream().anyMatch(key -> session.branches().get(key) != null)) {
            return decide(isUrgent);
        }
        boolean isAlone = prepared.size() == 1
                && enqueues.isEmpty() && dequeues.isEmpty() && ended.isEmpty();
        PreparedBranch branch = isAlone ? prepared.get(0).branch(session) : null;
        RecordBatch batch = new RecordBatch();
        BroughtMessages brought = new BroughtMessages(store, batch, messages());
        try {
            if (branch == null) {
                fill(batch, brought);
            } else {
                fill(batch, brought, branch);
            }
        } catch (RuntimeException failure) {
            brought.abandon();
            throw failure;
        }
        if (batch.count() == 0) {
            return CompletableFuture.completedFuture(null);
        }
        return branch == null ? apply(batch, brought, isUrgent)
                : prepare(batch, brought, branch, isUrgent);
    }

    private List<EnqueueableMessage<?>> messages() {
        List<EnqueueableMessage<?>> messages = new ArrayList<>();
        enqueues.forEach(enqueue -> messages.add(enqueue.message()));
        prepared.forEach(branch -> messages.addAll(branch.messages()));
        return messages;
    }

    private CompletableFuture<Void> apply(
            RecordBatch batch, BroughtMessages brought, boolean isUrgent) {
        CompletableFuture<Void> decided =
                brought.send(pieces -> session.client().submit(batch, pieces, isUrgent));
        Map<String, String> xids = xids();
        List<Enqueue> entered = List.copyOf(enqueues);
        List<MessageEnqueueRecord> left = List.copyOf(dequeues);
        forget();
        return decided.whenComplete((done, failure) -> {
            brought.decided(failure == null);
            if (failure == null) {
                entered.forEach(each -> store.ours(each.message()).keeping().entered(each.entry()));
                left.forEach(store::left);
                session.remember(ConfiguredObjects.XID, xids);
            }
        });
    }

    /**
     * Of a branch of which nobody knows whether it was prepared the coordinator is told that it was
     * not: so it is rolled back when the service is there again, and holds no entries.
     */
    private CompletableFuture<Void> prepare(RecordBatch batch, BroughtMessages brought,
            PreparedBranch branch, boolean isUrgent) {
        StoredXid xid = prepared.get(0).xid();
        CompletableFuture<Void> decided = brought.send(
                pieces -> session.client().prepare(batch, xid.packed(), pieces, isUrgent));
        forget();
        return decided.whenComplete((done, failure) -> {
            brought.decided(failure == null);
            if (failure == null) {
                session.branches().prepared(StoredXid.key(xid), branch);
            } else if (!(failure instanceof Refused || failure instanceof Withdrawn)) {
                session.branches().doubt(xid);
            }
        });
    }

    /**
     * The store has in the branch what is in this transaction, so what it is told is which way it
     * goes. What is here is kept if that fails: the coordinator asks again, of the same transaction.
     */
    private CompletableFuture<Void> decide(boolean isUrgent) {
        String key = ended.get(0);
        PreparedBranch branch = session.branches().get(key);
        List<EntryRecord> puts = enqueues.stream().map(Enqueue::entry).toList();
        List<EntryRecord> takes = dequeues.stream().map(EntryRecord::of).toList();
        boolean isThat = ended.size() == 1 && prepared.isEmpty() && branch.does(puts, takes);
        ended.clear();
        if (!isThat) {
            throw new ConnectionScopedRuntimeException("the branch " + key
                    + " was prepared to do something else than this transaction: it is in doubt");
        }
        boolean isCommit = !puts.isEmpty() || !takes.isEmpty();
        session.changing();
        if (isCommit) {
            takes.forEach(entry -> store.leaving(entry.messageNumber()));
        }
        return session.branches().decide(key, isCommit, isUrgent).thenRun(() -> {
            for (Enqueue each : enqueues) {
                Keeping keeping = store.ours(each.message()).keeping();
                keeping.keep(Keeping.Kept.ENQUEUED);
                keeping.entered(each.entry());
            }
            dequeues.forEach(store::left);
            if (!isCommit) {
                branch.enqueues().forEach(entry -> store.lost(entry.messageNumber()));
            }
            forget();
        });
    }

    private Map<String, String> xids() {
        Map<String, String> changes = new HashMap<>();
        prepared.forEach(branch -> changes.put(branch.key(), branch.detail()));
        ended.forEach(key -> changes.put(key, null));
        return changes;
    }

    private void fill(RecordBatch batch, BroughtMessages brought) {
        for (Preparation branch : prepared) {
            branch.messages().forEach(brought::stage);
            batch.configured(ConfiguredObjects.XID, branch.key(), branch.detail());
        }
        for (Enqueue enqueue : enqueues) {
            brought.enqueue(enqueue.queue(), enqueue.message(), Keeping.Kept.ENQUEUED);
        }
        for (MessageEnqueueRecord entry : dequeues) {
            String queue = session.queueName(entry.getQueueId());
            if (queue != null) {  // else its queue was destroyed, and the entry with it
                store.leaving(entry.getMessageNumber());
                batch.dequeued(queue, entry.getMessageNumber());
            }
        }
        ended.forEach(key -> batch.unconfigured(ConfiguredObjects.XID, key));
    }

    private void fill(RecordBatch batch, BroughtMessages brought, PreparedBranch branch) {
        for (EnqueueRecord enqueue : prepared.get(0).durable()) {
            brought.enqueue(enqueue.getResource(), enqueue.getMessage(), Keeping.Kept.STAGED);
        }
        for (EntryRecord entry : branch.dequeues()) {
            batch.dequeued(session.queueName(entry.queueId()), entry.messageNumber());
        }
    }

    private void forget() {
        enqueues.clear();
        dequeues.clear();
        prepared.clear();
        ended.clear();
    }
}
