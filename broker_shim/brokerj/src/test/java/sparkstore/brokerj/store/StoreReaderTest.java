package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.configuration.IllegalConfigurationException;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.MessageStore.MessageStoreReader;
import org.apache.qpid.server.store.Transaction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** Reading a store back: points 13 and 14 of the contract, on the real service. */
@Timeout(120)
class StoreReaderTest extends StoreTestCase {
    @Test
    void asynchronousRecoveryReadsByQueueAndById() {
        SampleQueue first = Samples.queue("first");
        SampleQueue second = Samples.queue("second");
        for (int n = 0; n < 10; n++) {
            Samples.enqueue(store, n % 2 == 0 ? first : second,
                    Samples.message(store, Samples.body(n)));
        }
        restartBroker();
        MessageStoreReader reader = store.newMessageStoreReader();
        reader.visitDistributedTransactions((a, b, c) -> true);
        List<Integer> sizes = new ArrayList<>();
        reader.visitMessageInstances(second, entry ->
                sizes.add(reader.getMessage(entry.getMessageNumber()).getContentSize()));
        assertEquals(List.of(1, 3, 5, 7, 9), sizes);
        List<Long> seen = new ArrayList<>();
        reader.visitMessageInstances(first, entry -> {
            seen.add(entry.getMessageNumber());
            return seen.size() < 2;
        });
        assertEquals(2, seen.size());
        assertNull(reader.getMessage(999_999));
        List<Long> messages = new ArrayList<>();
        reader.visitMessages(message -> messages.add(message.getMessageNumber()));
        assertEquals(10, messages.size());
        reader.visitMessageInstances(Samples.queue("unknown"), entry -> {
            throw new AssertionError("no such queue");
        });
        reader.close();
    }

    @Test
    void theMessageStoreIsOpenedAgainWhileTheNodeStays() {
        MessageEnqueueRecord entry = Samples.enqueue(
                store, Samples.queue("q"), Samples.message(store, Samples.body(3)));
        for (int n = 0; n < 3; n++) {
            store.closeMessageStore();
            store.closeMessageStore();
            assertThrows(IllegalStateException.class, store::newTransaction);
            store.openMessageStore(null);
            store.openMessageStore(null);
            assertEquals(List.of(entry), Samples.entries(store));
            assertEquals(1, Samples.messages(store).size());
        }
        assertThrows(IllegalStateException.class, () -> store.onDelete(null));
    }

    @Test
    void entriesOfAQueueThatTheBrokerForgotCanBeDequeued() {
        SampleQueue queue = Samples.queue("q");
        Samples.enqueue(store, queue, Samples.message(store, Samples.body(3)));
        restartBroker();
        List<EntryRecord> found = Samples.entries(store);
        found.forEach(entry -> Samples.dequeue(store, entry));
        assertEquals(List.of(), Samples.entries(store));
        assertEquals(List.of(), Samples.messages(store));
    }

    @Test
    void aQueueOfATakenNameHasItsOwnMessages() {
        SampleQueue old = new SampleQueue("same", UUID.randomUUID());
        SampleQueue young = new SampleQueue("same", UUID.randomUUID());
        MessageEnqueueRecord first = Samples.enqueue(
                store, old, Samples.message(store, Samples.body(3)));
        MessageEnqueueRecord second = Samples.enqueue(
                store, young, Samples.message(store, Samples.body(3)));
        restartBroker();
        assertEquals(java.util.Set.of(first, second), Set.copyOf(Samples.entries(store)));
    }

    @Test
    void metadataOfAnUnknownTypeAreToldWithTheirTypeAndKept() throws Exception {
        SampleQueue queue = Samples.queue("q");
        MessageEnqueueRecord first = Samples.enqueue(
                store, queue, Samples.message(store, Samples.body(3)));
        MessageEnqueueRecord second = Samples.enqueue(
                store, queue, OtherMetaData.message(store, 77));
        restartBoth();
        IllegalConfigurationException failure = assertThrows(
                IllegalConfigurationException.class, () -> Samples.messages(store));
        assertTrue(failure.getMessage().contains(
                "metadata of type 77: put the plugin of its protocol"),
                failure.getMessage());
        assertEquals(List.of(first, second), Samples.entries(store));
    }

    @Test
    void tenThousandQueues() throws Exception {
        int count = 10_000;
        Future<Integer> last = null;
        List<MessageEnqueueRecord> expected = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            Transaction transaction = store.newTransaction();
            expected.add(transaction.enqueueMessage(
                    Samples.queue("q" + n), Samples.message(store, Samples.body(10))));
            last = transaction.commitTranAsync(n);
        }
        last.get(60, TimeUnit.SECONDS);
        restartBoth();
        List<EntryRecord> found = Samples.entries(store);
        assertEquals(count, found.size());
        assertEquals(Set.copyOf(expected), Set.copyOf(found));
        assertEquals(count, Samples.messages(store).size());
    }
}
