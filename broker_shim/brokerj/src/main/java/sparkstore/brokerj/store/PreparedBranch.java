package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.store.MessageDurability;
import org.apache.qpid.server.store.StorableMessageMetaData;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction.DequeueRecord;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;
import org.apache.qpid.server.store.TransactionLogResource;

/**
 * What an XA branch will do when it commits. As the detail of a configured object: JSON with lists
 * {@code enqueues} and {@code dequeues} of [queue UUID, message id].
 */
record PreparedBranch(List<EntryRecord> enqueues, List<EntryRecord> dequeues) {
    static PreparedBranch of(EnqueueRecord[] enqueues, DequeueRecord[] dequeues) {
        List<EntryRecord> in = new ArrayList<>();
        for (EnqueueRecord enqueue : enqueues) {
            in.add(new EntryRecord(
                    enqueue.getResource().getId(), enqueue.getMessage().getMessageNumber()));
        }
        List<EntryRecord> out = new ArrayList<>();
        for (DequeueRecord dequeue : dequeues) {
            out.add(EntryRecord.of(dequeue.getEnqueueRecord()));
        }
        return new PreparedBranch(in, out);
    }

    static PreparedBranch of(String detail) {
        Map<String, Object> content = Json.read(detail);
        return new PreparedBranch(
                entries(content.get("enqueues")), entries(content.get("dequeues")));
    }

    private static List<EntryRecord> entries(Object rows) {
        List<EntryRecord> entries = new ArrayList<>();
        for (Object row : (List<?>) rows) {
            List<?> pair = (List<?>) row;
            entries.add(new EntryRecord(
                    UUID.fromString((String) pair.get(0)), ((Number) pair.get(1)).longValue()));
        }
        return entries;
    }

    /** Does it do all of that, and perhaps more? */
    boolean does(List<EntryRecord> puts, List<EntryRecord> takes) {
        return new HashSet<>(enqueues).containsAll(puts) && new HashSet<>(dequeues).containsAll(takes);
    }

    String detail() {
        return Json.write(Map.of("enqueues", rows(enqueues), "dequeues", rows(dequeues)));
    }

    private static List<List<Object>> rows(List<EntryRecord> entries) {
        List<List<Object>> rows = new ArrayList<>();
        entries.forEach(entry -> rows.add(
                List.of(entry.queueId().toString(), entry.messageNumber())));
        return rows;
    }

    EnqueueRecord[] enqueueRecords() {
        return enqueues.stream().map(Enqueue::new).toArray(EnqueueRecord[]::new);
    }

    DequeueRecord[] dequeueRecords() {
        return dequeues.stream().map(entry -> (DequeueRecord) () -> entry)
                .toArray(DequeueRecord[]::new);
    }

    /** Names queue and message; the broker finds both by their ids. */
    private record Enqueue(EntryRecord entry)
            implements EnqueueRecord, TransactionLogResource, EnqueueableMessage {
        @Override
        public TransactionLogResource getResource() {
            return this;
        }

        @Override
        public EnqueueableMessage getMessage() {
            return this;
        }

        @Override
        public String getName() {
            return entry.queueId().toString();
        }

        @Override
        public UUID getId() {
            return entry.queueId();
        }

        @Override
        public MessageDurability getMessageDurability() {
            return MessageDurability.DEFAULT;
        }

        @Override
        public long getMessageNumber() {
            return entry.messageNumber();
        }

        @Override
        public boolean isPersistent() {
            return true;
        }

        @Override
        public StoredMessage<? extends StorableMessageMetaData> getStoredMessage() {
            throw new UnsupportedOperationException("a recovered XA branch only names its messages");
        }
    }
}
