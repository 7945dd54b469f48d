package sparkstore.brokerj.store;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.qpid.server.configuration.IllegalConfigurationException;
import org.apache.qpid.server.store.StorableMessageMetaData;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.Refused;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * XA branches as configured objects of the category {@code xid}: as earlier versions kept all, and
 * as those are kept still that the store cannot keep as branches of its own. Those have nothing to
 * do there, an xid that is none to the store, a message of another store, or one that is on a queue
 * already.
 */
final class ObjectBranches {
    private static final Logger LOGGER = LoggerFactory.getLogger(ObjectBranches.class);

    private ObjectBranches() {
    }

    /**
     * Make branches of the store of those of an earlier version; at a start, before the broker is
     * told of any. A branch and its object change places in one request, so a crash leaves one of
     * both. What the store refuses stays as it is, and is decided as it was.
     */
    static void move(SparkStoreMessageStore store, StoreSession session) {
        session.configured().all(ConfiguredObjects.XID).forEach((key, detail) -> {
            try {
                move(StoredXid.of(key), PreparedBranch.of(detail), store, session);
                LOGGER.info("the branch {} in doubt was kept by an earlier version: it is moved to"
                        + " where sparkstore transactions shows it", key);
            } catch (Refused | IllegalConfigurationException | IllegalStateException reason) {
                LOGGER.warn("the branch {} in doubt stays a configured object: {}",
                        key, reason.getMessage());
            }
        });
    }

    /** @throws IllegalStateException the store cannot keep it; so do Refused and the others say */
    private static void move(StoredXid xid, PreparedBranch branch, SparkStoreMessageStore store,
            StoreSession session) {
        require(xid.isStorable(), "the store knows no such xid");
        RecordBatch batch = batch(branch, store, session);
        require(batch.count() > 0, "it does nothing");
        String key = StoredXid.key(xid);
        batch.unconfigured(ConfiguredObjects.XID, key);
        session.changing();
        Failures.await(session.client().prepare(batch, xid.packed(), null, true));
        session.branches().prepared(key, branch);
        Map<String, String> changes = new HashMap<>();
        changes.put(key, null);
        session.remember(ConfiguredObjects.XID, changes);
    }

    private static RecordBatch batch(
            PreparedBranch branch, SparkStoreMessageStore store, StoreSession session) {
        RecordBatch batch = new RecordBatch();
        Set<Long> brought = new HashSet<>();
        for (EntryRecord entry : branch.enqueues()) {
            long messageId = entry.messageNumber();
            byte[] header = staged(messageId, store, session)
                    .enqueue(null, !brought.add(messageId)).header();
            batch.enqueued(queueName(entry, session), messageId, header, null);
        }
        for (EntryRecord entry : branch.dequeues()) {
            batch.dequeued(queueName(entry, session), entry.messageNumber());
        }
        return batch;
    }

    private static String queueName(EntryRecord entry, StoreSession session) {
        String name = session.queueName(entry.queueId());
        require(name != null, "its queue " + entry.queueId() + " is not there");
        return name;
    }

    private static SparkStoredMessage<?> staged(
            long messageId, SparkStoreMessageStore store, StoreSession session) {
        StorableMessageMetaData metaData =
                MetaData.decode(messageId, session.client().load(messageId).header());
        require(metaData.isPersistent(), "message " + messageId + " is transient");
        return store.recovered(messageId, metaData, Keeping.Kept.STAGED);
    }

    private static void require(boolean isTrue, String otherwise) {
        if (!isTrue) {
            throw new IllegalStateException(otherwise);
        }
    }
}
