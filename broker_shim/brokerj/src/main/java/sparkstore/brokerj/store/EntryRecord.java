package sparkstore.brokerj.store;

import java.util.UUID;
import org.apache.qpid.server.store.MessageEnqueueRecord;

/** A message on a queue: this pair is all that the broker keeps of it. */
record EntryRecord(UUID queueId, long messageNumber) implements MessageEnqueueRecord {
    /** The pair, without what the broker has to it. */
    static EntryRecord of(MessageEnqueueRecord entry) {
        return new EntryRecord(entry.getQueueId(), entry.getMessageNumber());
    }

    /** Is it the same pair, whoever made it? */
    boolean isSame(MessageEnqueueRecord other) {
        return queueId.equals(other.getQueueId()) && messageNumber == other.getMessageNumber();
    }

    @Override
    public UUID getQueueId() {
        return queueId;
    }

    @Override
    public long getMessageNumber() {
        return messageNumber;
    }
}
