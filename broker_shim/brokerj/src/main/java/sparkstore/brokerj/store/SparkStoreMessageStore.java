package sparkstore.brokerj.store;

import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.model.ConfiguredObject;
import org.apache.qpid.server.store.Event;
import org.apache.qpid.server.store.EventListener;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.MessageHandle;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.SizeMonitoringSettings;
import org.apache.qpid.server.store.StorableMessageMetaData;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.store.Transaction;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.StoreClient;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * The broker's message store, over the session that the node's configuration store opened.
 *
 * <p>Contract: ids are unique and rising (point 5); {@link #isPersistent} is true, or AMQP 1.0 would
 * refuse durable messages (point 9); quota events (point 10); opened and closed again while the
 * virtual host is stopped, for export and import (points 14, 15); closing twice is nothing, and
 * {@link #onDelete} wants the store closed (point 16).
 */
public final class SparkStoreMessageStore implements MessageStore {
    private final Supplier<StoreSession> sessions;
    private final Location location;
    private final AtomicLong inMemory = new AtomicLong();
    private final AtomicLong evacuated = new AtomicLong();
    private final Map<Long, SparkStoredMessage<?>> messages = new ConcurrentHashMap<>();
    private final Set<MessageDeleteListener> deleteListeners = ConcurrentHashMap.newKeySet();
    private final Quota quota = new Quota();
    private volatile StoreSession session;

    /** Where the root is, for people. */
    interface Location {
        /** Path or URI of the root; may be empty. */
        String path();

        /** The quota of the node, used where the virtual host has none. */
        SizeMonitoringSettings quota();

        /** The message store was closed: the session may go if nobody else uses it. */
        void messageStoreClosed();
    }

    /** @param sessions the session of the configuration store; fails while that is closed */
    SparkStoreMessageStore(Supplier<StoreSession> sessions, Location location) {
        this.sessions = sessions;
        this.location = location;
    }

    @Override
    public synchronized void openMessageStore(ConfiguredObject<?> parent) {
        if (session == null) {
            session = sessions.get();
            try {
                ObjectBranches.move(this, session);
            } catch (RuntimeException failure) {
                closeMessageStore();
                throw failure;
            }
            quota.start(session.client(), Quota.of(parent, location.quota()));
        }
    }

    @Override
    public void upgradeStoreStructure() {
        // The service migrates its tables itself.
    }

    @Override
    public synchronized void closeMessageStore() {
        if (session != null) {
            session = null;
            quota.stop();
            messages.values().forEach(SparkStoredMessage::clear);
            messages.clear();
            inMemory.set(0);
            evacuated.set(0);
            location.messageStoreClosed();
        }
    }

    boolean isOpen() {
        return session != null;
    }

    void checkOpen() {
        if (session == null) {
            throw new IllegalStateException("the message store is not open");
        }
    }

    StoreSession session() {
        StoreSession open = session;
        if (open == null) {
            throw new IllegalStateException("the message store is not open");
        }
        return open;
    }

    @Override
    public long getNextMessageId() {
        return session().nextMessageId();
    }

    @Override
    public <T extends StorableMessageMetaData> MessageHandle<T> addMessage(T metaData) {
        return message(getNextMessageId(), metaData, Keeping.Kept.NOWHERE);
    }

    <T extends StorableMessageMetaData> SparkStoredMessage<T> message(
            long messageId, T metaData, Keeping.Kept kept) {
        SparkStoredMessage<T> message = new SparkStoredMessage<>(this, messageId, metaData, kept);
        messages.put(messageId, message);
        return message;
    }

    /** The message of this id, which a reader found: one object, however often it is found. */
    @SuppressWarnings("unchecked")
    <T extends StorableMessageMetaData> SparkStoredMessage<T> recovered(
            long messageId, T metaData, Keeping.Kept kept) {
        SparkStoredMessage<T> known = (SparkStoredMessage<T>) messages.get(messageId);
        return known == null ? message(messageId, metaData, kept) : known;
    }

    /** @throws StoreException the message was made by another store: the broker mixed up two hosts */
    SparkStoredMessage<?> ours(EnqueueableMessage<?> message) {
        if (message.getStoredMessage() instanceof SparkStoredMessage<?> stored) {
            return stored;
        }
        throw new StoreException("message " + message.getMessageNumber() + " is of another store");
    }

    /** Write a message that is on no queue, and wait until it is durable. */
    void stage(long messageId, byte[] header, byte[] body) {
        session().changing();
        StoreClient.Pieces pieces = session().client().newPieces();
        try {
            Failures.await(pieces.send(messageId, header, body));
        } finally {
            pieces.abandon();
        }
    }

    /** What was staged of a message will not be enqueued; nobody waits for that to be recorded. */
    void unstage(long messageId) {
        session().changing();
        session().client().submit(new RecordBatch().stagingAborted(messageId), null, false);
    }

    /** A message goes that is on queues still; nobody waits for that to be recorded. */
    void takeOff(List<EntryRecord> entries) {
        StoreSession open = session();
        open.changing();
        for (EntryRecord entry : entries) {
            String queue = open.queueName(entry.queueId());
            if (queue != null) {  // else its queue was destroyed, and the entry with it
                open.client().submit(
                        new RecordBatch().dequeued(queue, entry.messageNumber()), null, false);
            }
        }
    }

    /** An entry was recovered, or is durable from now on. */
    void entered(EntryRecord entry) {
        SparkStoredMessage<?> message = messages.get(entry.messageNumber());
        if (message != null) {
            message.keeping().entered(entry);
        }
    }

    /** An entry is durably gone. */
    void left(MessageEnqueueRecord entry) {
        SparkStoredMessage<?> message = messages.get(entry.getMessageNumber());
        if (message != null) {
            message.keeping().left(entry);
        }
    }

    /** The XA branch that would have put it on a queue was rolled back: the service forgot it. */
    void lost(long messageId) {
        SparkStoredMessage<?> message = messages.get(messageId);
        if (message != null) {
            message.keeping().lost();
        }
    }

    void inMemory(long change) {
        inMemory.addAndGet(change);
    }

    void evacuated(long bytes) {
        evacuated.addAndGet(bytes);
    }

    /** A message is about to leave a queue, perhaps its last: see {@link SparkStoredMessage#leaving}. */
    void leaving(long messageId) {
        SparkStoredMessage<?> message = messages.get(messageId);
        if (message != null) {
            message.leaving();
        }
    }

    /** A message goes for good; its metadata can still be read. */
    void removed(SparkStoredMessage<?> message) {
        messages.remove(message.getMessageNumber(), message);
        deleteListeners.forEach(listener -> listener.messageDeleted(message));
    }

    @Override
    public long getInMemorySize() {
        return inMemory.get();
    }

    @Override
    public long getBytesEvacuatedFromMemory() {
        return evacuated.get();
    }

    @Override
    public void resetStatistics() {
        evacuated.set(0);
    }

    @Override
    public boolean isPersistent() {
        return true;
    }

    @Override
    public Transaction newTransaction() {
        return new SparkStoreTransaction(this);
    }

    @Override
    public MessageStoreReader newMessageStoreReader() {
        return new SparkStoreReader(this, session());
    }

    @Override
    public String getStoreLocation() {
        return location.path();
    }

    /** The root's folder, if it is on this machine: the broker watches that its disk is not full. */
    @Override
    public File getStoreLocationAsFile() {
        File folder = new File(location.path());
        return !location.path().isEmpty() && folder.isDirectory() ? folder : null;
    }

    @Override
    public void addEventListener(EventListener listener, Event... events) {
        quota.events().addEventListener(listener, events);
    }

    @Override
    public void addMessageDeleteListener(MessageDeleteListener listener) {
        deleteListeners.add(listener);
    }

    @Override
    public void removeMessageDeleteListener(MessageDeleteListener listener) {
        deleteListeners.remove(listener);
    }

    /** Nothing of its own: the configuration store empties the root when the node is deleted. */
    @Override
    public void onDelete(ConfiguredObject<?> parent) {
        if (isOpen()) {
            throw new IllegalStateException("the message store is still open");
        }
    }
}
