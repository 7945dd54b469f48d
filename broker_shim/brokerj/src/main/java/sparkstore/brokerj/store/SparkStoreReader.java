package sparkstore.brokerj.store;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.qpid.server.store.MessageStore.MessageStoreReader;
import org.apache.qpid.server.store.StorableMessageMetaData;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.TransactionLogResource;
import org.apache.qpid.server.store.handler.DistributedTransactionHandler;
import org.apache.qpid.server.store.handler.MessageHandler;
import org.apache.qpid.server.store.handler.MessageInstanceHandler;
import sparkstore.brokerj.service.Loaded;
import sparkstore.brokerj.service.Refused;

/**
 * Reads a store back, for recovery (contract, point 13) and export (14). Entries come ordered by
 * (queue, message number): that becomes the queue's order (point 4).
 *
 * <p>Synchronous recovery visits messages, then entries, then XA branches: one walk through the
 * store serves it. Asynchronous recovery begins with XA branches and entries and visits messages
 * last: then the walk is made a second time for them. Used by one thread at a time.
 */
final class SparkStoreReader implements MessageStoreReader {
    private final SparkStoreMessageStore store;
    private final StoreSession session;
    private final Set<Long> prepared = new HashSet<>();
    private StoreContents contents;
    private Map<UUID, long[]> entries;

    SparkStoreReader(SparkStoreMessageStore store, StoreSession session) {
        this.store = store;
        this.session = session;
        branches().values().forEach(branch ->
                branch.enqueues().forEach(entry -> prepared.add(entry.messageNumber())));
    }

    /** Those that the store keeps as its own, and those that are configured objects. */
    private Map<String, PreparedBranch> branches() {
        Map<String, PreparedBranch> branches = session.branches().all();
        session.configured().all(ConfiguredObjects.XID)
                .forEach((key, detail) -> branches.put(key, PreparedBranch.of(detail)));
        return branches;
    }

    @Override
    public void visitMessages(MessageHandler handler) {
        store.checkOpen();
        if (contents == null || contents.isPastMessages()) {
            contents = session.contents();
        }
        contents.messages(found -> handler.handle(recovered(
                found.messageId(), MetaData.decode(found.messageId(), found.header()))));
    }

    private <T extends StorableMessageMetaData> StoredMessage<T> recovered(
            long messageId, T metaData) {
        boolean isPrepared = prepared.contains(messageId);
        return store.recovered(messageId, metaData, isPrepared
                ? Keeping.Kept.STAGED : Keeping.Kept.RECOVERED);
    }

    @Override
    public StoredMessage<?> getMessage(long messageId) {
        store.checkOpen();
        try {
            Loaded loaded = session.client().load(messageId);
            return recovered(messageId, MetaData.decode(messageId, loaded.header()));
        } catch (Refused unknown) {
            return null;
        }
    }

    @Override
    public void visitMessageInstances(MessageInstanceHandler handler) {
        store.checkOpen();
        for (Map.Entry<UUID, long[]> queue : entries().entrySet()) {
            if (!visit(queue.getKey(), queue.getValue(), handler)) {
                return;
            }
        }
    }

    @Override
    public void visitMessageInstances(TransactionLogResource queue, MessageInstanceHandler handler) {
        store.checkOpen();
        visit(queue.getId(), entries().getOrDefault(queue.getId(), new long[0]), handler);
    }

    private boolean visit(UUID queue, long[] messageIds, MessageInstanceHandler handler) {
        for (long messageId : messageIds) {
            EntryRecord entry = new EntryRecord(queue, messageId);
            boolean goesOn = handler.handle(entry);
            store.entered(entry);  // after it: asynchronous recovery gets the message meanwhile
            if (!goesOn) {
                return false;
            }
        }
        return true;
    }

    private Map<UUID, long[]> entries() {
        if (entries == null) {
            if (contents == null) {
                contents = session.contents();
            }
            entries = new TreeMap<>();
            contents.entries().forEach((name, messageIds) -> {
                UUID id = session.queueId(name);
                if (id != null) {  // else a queue that the broker did not make: not its business
                    entries.put(id, messageIds);
                }
            });
        }
        return entries;
    }

    @Override
    public void visitDistributedTransactions(DistributedTransactionHandler handler) {
        store.checkOpen();
        for (var branch : branches().entrySet()) {
            PreparedBranch content = branch.getValue();
            if (!handler.handle(StoredXid.of(branch.getKey()), content.enqueueRecords(),
                    content.dequeueRecords())) {
                return;
            }
        }
    }

    @Override
    public void close() {
        contents = null;
        entries = null;
    }
}
