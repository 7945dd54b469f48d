package sparkstore.brokerj.store;

import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.MessageIds;
import sparkstore.brokerj.service.Refused;
import sparkstore.brokerj.service.ServiceSettings;
import sparkstore.brokerj.service.StoreClient;
import sparkstore.brokerj.service.Withdrawn;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * One opening of a root: the connection, and what all stores of the virtual host know of it.
 *
 * <p>Made by the configuration store, shared with message, link and preference store.
 */
public final class StoreSession implements AutoCloseable {
    private final StoreClient client;
    private final QueueNames queues = new QueueNames();
    private final ConfiguredObjects configured = new ConfiguredObjects();
    private final BranchesInDoubt branches;
    private final MessageIds ids;
    private volatile StoreContents unread;

    /** Connects and reads definitions; see {@link StoreClient} for what can go wrong. */
    public StoreSession(ServiceSettings settings) {
        client = new StoreClient(settings);
        ids = new MessageIds(client);
        branches = new BranchesInDoubt(client);
        try {
            unread = new StoreContents(client.recover());
        } catch (RuntimeException failure) {
            client.close();
            throw failure;
        }
        unread.wiring().forEach(queues::recovered);
        unread.configured().forEach(
                row -> configured.put(row.category(), row.key(), row.detail()));
        branches.recovered(unread.branches(), queues);
    }

    StoreClient client() {
        return client;
    }

    ConfiguredObjects configured() {
        return configured;
    }

    BranchesInDoubt branches() {
        return branches;
    }

    long nextMessageId() {
        return ids.next();
    }

    /** Messages are about to change: what the start began to read is not what is there any more. */
    void changing() {
        unread = null;  // volatile: no lock on the path of each commit
    }

    /** What is in the store; what the start began to read, as long as no message changed since. */
    synchronized StoreContents contents() {
        StoreContents contents = unread;
        unread = null;
        return contents == null ? new StoreContents(client.recover()) : contents;
    }

    /** The name of a queue of the store; null if it is not there. */
    String queueName(UUID id) {
        return queues.nameOf(id);
    }

    UUID queueId(String name) {
        return queues.idOf(name);
    }

    /**
     * The name of a queue that is about to get a message: the first time it is created, by a request
     * of its own that is decided before any later one.
     */
    String queueName(UUID id, String wanted) {
        String name = queues.nameOf(id);
        return name == null ? createQueue(id, wanted, new RecordBatch()).name : name;
    }

    /** A queue's name and the request that creates it. */
    record Creation(String name, CompletableFuture<Void> decided) {
    }

    /** Create a queue, together with what is in the batch already; once, whoever comes first. */
    synchronized Creation createQueue(UUID id, String wanted, RecordBatch batch) {
        String known = queues.nameOf(id);
        if (known != null) {
            return new Creation(known, submit(batch));
        }
        String name = queues.free(id, wanted);
        batch.created(name, queues.definition(id));
        CompletableFuture<Void> decided = submit(batch);
        // Only now, so that nobody sends a message for it ahead of the request that creates it.
        queues.put(id, name);
        return new Creation(name, decided.whenComplete((done, failure) -> {
            if (failure instanceof Withdrawn || failure instanceof Refused) {
                queues.forget(id);  // it was not created: the next message for it tries again
            } else if (failure != null) {
                queues.doubt(id);
            }
        }));
    }

    private CompletableFuture<Void> submit(RecordBatch batch) {
        return batch.count() == 0 ? CompletableFuture.completedFuture(null)
                : client.submit(batch, null, false);
    }

    /**
     * Destroy a queue with its entries, together with what is in the batch; waits.
     *
     * <p>If nobody can say whether that happened, a message that comes for it yet creates it again,
     * which does nothing if it is there. The broker has let go of it either way, and at its next
     * start finds it with its messages, or does not.
     */
    synchronized void destroyQueue(UUID id, RecordBatch batch) {
        String name = queues.forget(id);
        if (name != null) {
            batch.destroyed(name);
        }
        try {
            apply(batch);
        } catch (RuntimeException failure) {
            if (name != null) {
                queues.put(id, name);
                if (!(failure instanceof Withdrawn || failure instanceof Refused)) {
                    queues.doubt(id);
                }
            }
            throw failure;
        }
    }

    /** Make records true, durably: waits. */
    void apply(RecordBatch batch) {
        if (batch.count() > 0) {
            Failures.await(client.submit(batch, null, true));
        }
    }

    /** Make configured objects as said, together and durably; null removes. */
    void configure(String category, Map<String, String> changes) {
        RecordBatch batch = new RecordBatch();
        changes.forEach((key, detail) -> {
            if (detail == null) {
                batch.unconfigured(category, key);
            } else {
                batch.configured(category, key, detail);
            }
        });
        apply(batch);
        remember(category, changes);
    }

    void remember(String category, Map<String, String> changes) {
        changes.forEach((key, detail) -> {
            if (detail == null) {
                configured.remove(category, key);
            } else {
                configured.put(category, key, detail);
            }
        });
    }

    /** Empty the root: branches in doubt, every queue of ours with its messages, every object. */
    void destroyAll() {
        branches.rollBackAll();
        queues.all().keySet().forEach(id -> destroyQueue(id, new RecordBatch()));
        configured.all().forEach((category, objects) -> {
            objects.replaceAll((key, detail) -> null);
            configure(category, objects);
        });
    }

    @Override
    public void close() {
        client.close();
    }
}
