package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.qpid.server.bytebuffer.QpidByteBuffer;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.protocol.v0_10.MessageMetaData_0_10;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.protocol.v0_10.transport.DeliveryProperties;
import org.apache.qpid.server.protocol.v0_10.transport.Header;
import org.apache.qpid.server.protocol.v0_10.transport.MessageDeliveryMode;
import org.apache.qpid.server.protocol.v0_10.transport.MessageProperties;
import org.apache.qpid.server.store.MessageDurability;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.MessageHandle;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.MessageStore.MessageStoreReader;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;
import org.apache.qpid.server.store.TransactionLogResource;

/** Queues and messages of the broker's own classes, and what a store holds. */
final class Samples {
    private Samples() {
    }

    record SampleQueue(String getName, UUID getId) implements TransactionLogResource {
        @Override
        public String getName() {
            return getName;
        }

        @Override
        public UUID getId() {
            return getId;
        }

        @Override
        public MessageDurability getMessageDurability() {
            return MessageDurability.DEFAULT;
        }
    }

    static SampleQueue queue(String name) {
        return new SampleQueue(name, UUID.randomUUID());
    }

    static byte[] body(int size) {
        byte[] body = new byte[size];
        for (int n = 0; n < size; n++) {
            body[n] = (byte) (n * 31);
        }
        return body;
    }

    /** A persistent AMQP 0-10 message, its content given in two parts. */
    static MessageTransferMessage message(MessageStore store, byte[] body) {
        DeliveryProperties delivery = new DeliveryProperties();
        delivery.setDeliveryMode(MessageDeliveryMode.PERSISTENT);
        delivery.setRoutingKey("key");
        MessageProperties properties = new MessageProperties();
        properties.setContentType("text/plain");
        properties.setApplicationHeaders(Map.of("region", "EU"));
        MessageMetaData_0_10 metaData =
                new MessageMetaData_0_10(new Header(delivery, properties), body.length, 1_000L);
        MessageHandle<MessageMetaData_0_10> handle = store.addMessage(metaData);
        int half = body.length / 2;
        if (body.length > 0) {
            handle.addContent(QpidByteBuffer.wrap(body, 0, half));
            handle.addContent(QpidByteBuffer.wrap(body, half, body.length - half));
        }
        return new MessageTransferMessage(handle.allContentAdded(), null);
    }

    /** What an XA branch is told to put on a queue. */
    record Enlisted(TransactionLogResource getResource, EnqueueableMessage getMessage)
            implements EnqueueRecord {
        @Override
        public TransactionLogResource getResource() {
            return getResource;
        }

        @Override
        public EnqueueableMessage getMessage() {
            return getMessage;
        }
    }

    /** A message that a reader found, as the broker enqueues it. */
    @SuppressWarnings("unchecked")
    static EnqueueableMessage<?> asMessage(StoredMessage<?> stored) {
        return new MessageTransferMessage((StoredMessage<MessageMetaData_0_10>) stored, null);
    }

    /** The XA branches in doubt that the broker is told of. */
    static List<Transaction.StoredXidRecord> branches(MessageStore store) {
        List<Transaction.StoredXidRecord> found = new ArrayList<>();
        store.newMessageStoreReader().visitDistributedTransactions(
                (xid, enqueues, dequeues) -> found.add(xid));
        return found;
    }

    static MessageEnqueueRecord enqueue(
            MessageStore store, TransactionLogResource queue, EnqueueableMessage<?> message) {
        Transaction transaction = store.newTransaction();
        MessageEnqueueRecord entry = transaction.enqueueMessage(queue, message);
        transaction.commitTran();
        return entry;
    }

    static void dequeue(MessageStore store, MessageEnqueueRecord entry) {
        Transaction transaction = store.newTransaction();
        transaction.dequeueMessage(entry);
        transaction.commitTran();
    }

    static byte[] content(StoredMessage<?> message) {
        try (QpidByteBuffer content = message.getContent(0, Integer.MAX_VALUE)) {
            byte[] bytes = new byte[content.remaining()];
            content.get(bytes);
            return bytes;
        }
    }

    static List<StoredMessage<?>> messages(MessageStore store) {
        List<StoredMessage<?>> found = new ArrayList<>();
        MessageStoreReader reader = store.newMessageStoreReader();
        reader.visitMessages(found::add);
        reader.close();
        return found;
    }

    /** Every entry, as (queue, message number), in the order in which they are visited. */
    static List<EntryRecord> entries(MessageStore store) {
        List<EntryRecord> found = new ArrayList<>();
        MessageStoreReader reader = store.newMessageStoreReader();
        reader.visitMessageInstances(entry -> found.add((EntryRecord) entry));
        reader.close();
        return found;
    }
}
