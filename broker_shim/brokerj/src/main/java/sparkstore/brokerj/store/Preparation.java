package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.List;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.store.MessageDurability;
import org.apache.qpid.server.store.Transaction.DequeueRecord;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;

/** An XA branch that a transaction prepares, as the broker gives it. */
record Preparation(StoredXid xid, EnqueueRecord[] enqueues, DequeueRecord[] dequeues) {
    String key() {
        return StoredXid.key(xid);
    }

    /** As of a configured object. */
    String detail() {
        return PreparedBranch.of(enqueues, dequeues).detail();
    }

    /** What the store is to keep as a branch of its own; null if it cannot. */
    PreparedBranch branch(StoreSession session) {
        PreparedBranch branch = new PreparedBranch(new ArrayList<>(), new ArrayList<>());
        boolean isStorable = xid.isStorable();
        for (EnqueueRecord enqueue : durable()) {
            isStorable = isStorable && isNew(enqueue.getMessage());
            branch.enqueues().add(new EntryRecord(
                    enqueue.getResource().getId(), enqueue.getMessage().getMessageNumber()));
        }
        for (DequeueRecord dequeue : dequeues) {
            EntryRecord entry = EntryRecord.of(dequeue.getEnqueueRecord());
            if (session.queueName(entry.queueId()) != null) {  // else it was destroyed
                branch.dequeues().add(entry);
            }
        }
        boolean isEmpty = branch.enqueues().isEmpty() && branch.dequeues().isEmpty();
        return isStorable && !isEmpty ? branch : null;
    }

    private static boolean isNew(EnqueueableMessage<?> message) {
        return message.getStoredMessage() instanceof SparkStoredMessage<?> stored
                && (stored.keeping().now() == Keeping.Kept.NOWHERE
                        || stored.keeping().now() == Keeping.Kept.STAGED);
    }

    /** What the branch puts on queues for good: the broker will commit no other enqueues. */
    List<EnqueueRecord> durable() {
        List<EnqueueRecord> durable = new ArrayList<>();
        for (EnqueueRecord enqueue : enqueues) {
            if (isKept(enqueue)) {
                durable.add(enqueue);
            }
        }
        return durable;
    }

    /**
     * Whether a queue keeps a message for good. One that does not say what it keeps has the broker's
     * default: what is persistent. To lose that would be worse than to keep too much.
     */
    private static boolean isKept(EnqueueRecord enqueue) {
        MessageDurability durability = enqueue.getResource().getMessageDurability();
        return (durability == null ? MessageDurability.DEFAULT : durability)
                .persist(enqueue.getMessage().isPersistent());
    }

    /** All messages that it names, in the broker's order. */
    List<EnqueueableMessage<?>> messages() {
        List<EnqueueableMessage<?>> messages = new ArrayList<>();
        for (EnqueueRecord enqueue : enqueues) {
            messages.add(enqueue.getMessage());
        }
        return messages;
    }
}
