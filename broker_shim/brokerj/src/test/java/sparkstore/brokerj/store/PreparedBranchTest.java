package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.store.MemoryMessageStore;
import org.apache.qpid.server.store.MessageDurability;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.MessageStore.MessageStoreReader;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction.DequeueRecord;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;
import org.apache.qpid.server.store.Transaction;
import org.apache.qpid.server.store.TransactionLogResource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** XA branches: point 11 of the contract, on the real service. */
@Timeout(120)
class PreparedBranchTest extends StoreTestCase {
    @Test
    void aMessageOfAnotherStoreInABranchIsLeftToThatStore() throws Exception {
        SampleQueue queue = Samples.queue("q");
        MessageTransferMessage foreign = Samples.message(new MemoryMessageStore(), Samples.body(5));
        Transaction prepare = store.newTransaction();
        prepare.recordXid(8, new byte[] {1}, new byte[] {2},
                new EnqueueRecord[] {new Samples.Enlisted(queue, foreign)}, new DequeueRecord[0]);
        prepare.commitTran();
        restartBoth();

        List<Long> enlisted = new ArrayList<>();
        MessageStoreReader reader = store.newMessageStoreReader();
        reader.visitMessages(message -> {
            throw new AssertionError("a message that this store never had");
        });
        reader.visitDistributedTransactions((record, enqueues, dequeues) ->
                enlisted.add(enqueues[0].getMessage().getMessageNumber()));
        assertEquals(List.of(foreign.getMessageNumber()), enlisted);
    }

    /** As the broker's own contract has it: its queues there say nothing of what they keep. */
    @Test
    void aQueueThatDoesNotSayWhatItKeepsKeepsWhatIsPersistent() throws Exception {
        TransactionLogResource silent = new TransactionLogResource() {
            private final UUID id = UUID.randomUUID();

            @Override
            public String getName() {
                return "silent";
            }

            @Override
            public UUID getId() {
                return id;
            }

            @Override
            public MessageDurability getMessageDurability() {
                return null;
            }
        };
        MessageTransferMessage ours = Samples.message(store, Samples.body(5));
        MessageTransferMessage foreign = Samples.message(new MemoryMessageStore(), Samples.body(5));
        List<Transaction.StoredXidRecord> recorded = new ArrayList<>();
        for (MessageTransferMessage message : List.of(ours, foreign)) {
            Transaction prepare = store.newTransaction();
            recorded.add(prepare.recordXid(8, new byte[] {1}, new byte[] {(byte) recorded.size()},
                    new EnqueueRecord[] {new Samples.Enlisted(silent, message)},
                    new DequeueRecord[0]));
            prepare.commitTran();
        }
        restartBoth();
        assertEquals(Set.copyOf(recorded), Set.copyOf(Samples.branches(store)));
        assertEquals(List.of(ours.getMessageNumber()), Samples.messages(store).stream()
                .map(StoredMessage::getMessageNumber).toList());
    }

    @Test
    void aPreparedBranchSurvivesAndCommits() throws Exception {
        SampleQueue queue = Samples.queue("q");
        MessageEnqueueRecord taken = Samples.enqueue(
                store, queue, Samples.message(store, Samples.body(10)));
        MessageTransferMessage put = Samples.message(store, Samples.body(777));
        Transaction prepare = store.newTransaction();
        Transaction.StoredXidRecord xid = prepare.recordXid(7, new byte[] {1, 2}, new byte[] {3},
                new EnqueueRecord[] {new Samples.Enlisted(queue, put)},
                new DequeueRecord[] {() -> taken});
        prepare.commitTran();
        restartBoth();

        Map<Long, StoredMessage<?>> messages = new HashMap<>();
        MessageStoreReader reader = store.newMessageStoreReader();
        reader.visitMessages(message -> messages.put(message.getMessageNumber(), message) == null);
        List<Transaction.StoredXidRecord> found = new ArrayList<>();
        reader.visitDistributedTransactions((record, enqueues, dequeues) -> {
            assertEquals(queue.getId(), enqueues[0].getResource().getId());
            assertEquals(put.getMessageNumber(), enqueues[0].getMessage().getMessageNumber());
            assertEquals(taken, dequeues[0].getEnqueueRecord());
            return found.add(record);
        });
        reader.close();
        assertEquals(List.of(xid), found);
        assertEquals(xid.hashCode(), found.get(0).hashCode());
        assertEquals(List.of(taken), Samples.entries(store));

        StoredMessage<?> recovered = messages.get(put.getMessageNumber());
        assertArrayEquals(Samples.body(777), Samples.content(recovered));
        Transaction commit = store.newTransaction();
        commit.enqueueMessage(queue, Samples.asMessage(recovered));
        commit.dequeueMessage(taken);
        commit.removeXid(found.get(0));
        commit.commitTran();
        restartBoth();
        assertEquals(List.of(new EntryRecord(queue.getId(), put.getMessageNumber())),
                Samples.entries(store));
        assertArrayEquals(Samples.body(777), Samples.content(Samples.messages(store).get(0)));
        assertEquals(List.of(), Samples.branches(store));
    }

    /** 40,000 messages: too many for one frame when it is prepared, and when it commits. */
    @Test
    void aBranchLargerThanAFrameSurvivesAndCommits() throws Exception {
        int count = 40_000;
        SampleQueue queue = Samples.queue("q");
        EnqueueRecord[] enqueues = new EnqueueRecord[count];
        for (int n = 0; n < count; n++) {
            enqueues[n] = new Samples.Enlisted(queue, Samples.message(store, Samples.body(n % 300)));
        }
        Transaction prepare = store.newTransaction();
        prepare.recordXid(7, new byte[] {1}, new byte[] {2}, enqueues, new DequeueRecord[0]);
        prepare.commitTran();
        restartBoth();
        assertEquals(List.of(), Samples.entries(store));
        Map<Long, StoredMessage<?>> messages = new HashMap<>();
        Samples.messages(store).forEach(each -> messages.put(each.getMessageNumber(), each));
        Transaction commit = store.newTransaction();
        store.newMessageStoreReader().visitDistributedTransactions((xid, found, dequeues) -> {
            for (EnqueueRecord each : found) {
                commit.enqueueMessage(
                        queue, Samples.asMessage(messages.get(each.getMessage().getMessageNumber())));
            }
            commit.removeXid(xid);
            return true;
        });
        commit.commitTran();
        restartBoth();
        assertEquals(count, Samples.entries(store).size());
        assertEquals(299, Samples.messages(store).get(count - 101).getContentSize());
        assertEquals(List.of(), Samples.branches(store));
    }

    /** A kill -9 of the broker between the messages of a large branch and the branch itself. */
    @Test
    void whatIsLeftOfABranchThatWasNeverPreparedGoesAway() throws Exception {
        MessageTransferMessage message = Samples.message(store, Samples.body(3_000_000));
        assertTrue(message.getStoredMessage().flowToDisk());
        Samples.enqueue(store, Samples.queue("q"), Samples.message(store, Samples.body(1)));
        restartBoth();
        assertEquals(2, Samples.messages(store).size());
        EntryRecord kept = Samples.entries(store).get(0);
        for (StoredMessage<?> each : Samples.messages(store)) {
            if (each.getMessageNumber() != kept.messageNumber()) {
                each.remove();
            }
        }
        restartBoth();
        assertEquals(List.of(kept.messageNumber()),
                Samples.messages(store).stream().map(StoredMessage::getMessageNumber).toList());
    }
}
