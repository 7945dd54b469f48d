package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** What the broker relies on when it writes: points 1 to 5 of the contract, on the real service. */
@Timeout(120)
class MessageContractTest extends StoreTestCase {
    // ---------------------------------------------------------- 1: written by the first commit

    @Test
    void nothingIsWrittenBeforeTheFirstCommit() {
        MessageTransferMessage message = Samples.message(store, Samples.body(100));
        store.newTransaction().enqueueMessage(Samples.queue("q"), message);
        restartBroker();
        assertEquals(List.of(), Samples.messages(store));
        assertEquals(List.of(), Samples.entries(store));
    }

    @Test
    void aMessageIsWrittenOnceHoweverManyQueuesItGoesTo() throws Exception {
        byte[] body = Samples.body(1000);
        MessageTransferMessage message = Samples.message(store, body);
        SampleQueue[] queues = {Samples.queue("a"), Samples.queue("b"), Samples.queue("c")};
        Transaction transaction = store.newTransaction();
        transaction.enqueueMessage(queues[0], message);
        transaction.enqueueMessage(queues[1], message);
        transaction.commitTran();
        Samples.enqueue(store, queues[2], message);
        restartBoth();
        assertEquals(3, Samples.entries(store).size());
        List<StoredMessage<?>> found = Samples.messages(store);
        assertEquals(1, found.size());
        assertArrayEquals(body, Samples.content(found.get(0)));
    }

    @Test
    void anAbortedTransactionLeavesNothingAndItsMessageCanBeSentAgain() {
        MessageTransferMessage message = Samples.message(store, Samples.body(10));
        SampleQueue queue = Samples.queue("q");
        Transaction transaction = store.newTransaction();
        transaction.enqueueMessage(queue, message);
        transaction.abortTran();
        assertEquals(List.of(), Samples.entries(store));
        Samples.enqueue(store, queue, message);
        assertEquals(1, Samples.entries(store).size());
    }

    @Test
    void aRefusedTransactionLeavesNothingAndItsMessageCanBeSentAgain() {
        MessageTransferMessage message = Samples.message(store, Samples.body(10));
        SampleQueue queue = Samples.queue("q");
        MessageEnqueueRecord gone = Samples.enqueue(
                store, queue, Samples.message(store, Samples.body(1)));
        Samples.dequeue(store, gone);
        Transaction transaction = store.newTransaction();
        transaction.enqueueMessage(queue, message);
        transaction.dequeueMessage(gone);
        assertThrows(sparkstore.brokerj.service.Refused.class, transaction::commitTran);
        assertEquals(List.of(), Samples.entries(store));
        Samples.enqueue(store, queue, message);
        restartBroker();
        assertArrayEquals(Samples.body(10), Samples.content(Samples.messages(store).get(0)));
    }

    @Test
    void aMessageWhoseFirstEnqueueIsRefusedIsBroughtByTheNextThatWasSentMeanwhile()
            throws Exception {
        for (int size : new int[] {10, 9_000_000}) {
            byte[] body = Samples.body(size);
            MessageTransferMessage message = Samples.message(store, body);
            Transaction refused = store.newTransaction();
            refused.enqueueMessage(Samples.queue("first" + size), message);
            SampleQueue there = Samples.queue("there" + size);
            MessageEnqueueRecord gone = Samples.enqueue(
                    store, there, Samples.message(store, Samples.body(1)));
            Samples.dequeue(store, gone);
            refused.dequeueMessage(gone);
            Transaction next = store.newTransaction();
            next.enqueueMessage(there, message);
            Future<Integer> first = refused.commitTranAsync(1);
            Future<Integer> second = next.commitTranAsync(2);
            Throwable failure = assertThrows(ExecutionException.class, first::get).getCause();
            assertInstanceOf(sparkstore.brokerj.service.Refused.class, failure);
            assertEquals(2, second.get());
            Samples.enqueue(store, Samples.queue("third" + size), message);
            restartBroker();
            for (StoredMessage<?> each : Samples.messages(store)) {
                assertArrayEquals(Samples.body(each.getContentSize()), Samples.content(each));
            }
        }
        assertEquals(4, Samples.entries(store).size());
        assertEquals(List.of(10, 9_000_000), Samples.messages(store).stream()
                .map(StoredMessage::getContentSize).toList());
    }

    @Test
    void anUnwrittenMessageIsWrittenByFlowToDiskAndEnqueuedLater() throws Exception {
        for (int size : new int[] {0, 1000, 3_000_000}) {
            byte[] body = Samples.body(size);
            MessageTransferMessage message = Samples.message(store, body);
            StoredMessage<?> stored = message.getStoredMessage();
            assertTrue(stored.flowToDisk());
            assertEquals(0, stored.getInMemorySize());
            assertArrayEquals(body, Samples.content(stored));
            stored.flowToDisk();
            Samples.enqueue(store, Samples.queue("q" + size), message);
        }
        restartBoth();
        List<StoredMessage<?>> found = Samples.messages(store);
        assertEquals(List.of(0, 1000, 3_000_000),
                found.stream().map(StoredMessage::getContentSize).toList());
        for (StoredMessage<?> each : found) {
            assertArrayEquals(Samples.body(each.getContentSize()), Samples.content(each));
        }
    }

    // -------------------------------------------------------------- 2, 3: commits and futures

    @Test
    void futuresCompleteInTheOrderOfSubmissionAndWithoutGet() throws Exception {
        SampleQueue queue = Samples.queue("q");
        List<Integer> completed = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch all = new CountDownLatch(500);
        for (int n = 0; n < 500; n++) {
            Transaction transaction = store.newTransaction();
            transaction.enqueueMessage(queue, Samples.message(store, Samples.body(50)));
            transaction.commitTranAsync(n).thenAccept(number -> {
                completed.add(number);
                all.countDown();
            });
        }
        assertTrue(all.await(30, TimeUnit.SECONDS), "nobody calls get()");
        assertEquals(java.util.stream.IntStream.range(0, 500).boxed().toList(), completed);
        assertEquals(500, Samples.entries(store).size());
    }

    @Test
    void anEmptyTransactionCommits() throws Exception {
        store.newTransaction().commitTran();
        assertEquals("x", store.newTransaction().commitTranAsync("x").get(10, TimeUnit.SECONDS));
    }

    @Test
    void aTransactionLargerThanAFrame() throws Exception {
        SampleQueue queue = Samples.queue("q");
        Transaction transaction = store.newTransaction();
        for (int n = 0; n < 150; n++) {
            transaction.enqueueMessage(queue, Samples.message(store, Samples.body(100_000)));
        }
        transaction.enqueueMessage(queue, Samples.message(store, Samples.body(9_000_000)));
        transaction.commitTran();
        restartBoth();
        assertEquals(151, Samples.entries(store).size());
        List<StoredMessage<?>> found = Samples.messages(store);
        assertArrayEquals(Samples.body(9_000_000), Samples.content(found.get(150)));
        assertArrayEquals(Samples.body(100_000), Samples.content(found.get(149)));
    }

    // ------------------------------------------------------------------ 4: order of the entries

    @Test
    void entriesAreVisitedByQueueAndMessageNumber() throws Exception {
        List<SampleQueue> queues = List.of(Samples.queue("b"), Samples.queue("a"), Samples.queue("c"));
        List<MessageTransferMessage> messages = new ArrayList<>();
        for (int n = 0; n < 60; n++) {
            messages.add(Samples.message(store, Samples.body(5)));
        }
        Collections.shuffle(messages, new java.util.Random(5));
        for (int n = 0; n < 60; n++) {
            Samples.enqueue(store, queues.get(n % 3), messages.get(n));
        }
        for (int round = 0; round < 2; round++) {
            List<EntryRecord> found = Samples.entries(store);
            List<EntryRecord> sorted = new ArrayList<>(found);
            sorted.sort(java.util.Comparator.comparing(EntryRecord::queueId)
                    .thenComparing(EntryRecord::messageNumber));
            assertEquals(60, found.size());
            assertEquals(sorted, found);
            restartBoth();
        }
    }

    // ------------------------------------------------------------------------------- 5: the ids

    /** The broker's own tests of stores count messages from 0. */
    @Test
    void messageNumberZeroIsANumberLikeAnother() throws Exception {
        MessageTransferMessage message = Samples.message(store, Samples.body(10));
        EnqueueableMessage<?> zero = new Numbered(0, message.getStoredMessage());
        MessageEnqueueRecord entry = Samples.enqueue(store, Samples.queue("q"), zero);
        restartBoth();
        List<StoredMessage<?>> found = Samples.messages(store);
        assertEquals(List.of(0L), found.stream().map(StoredMessage::getMessageNumber).toList());
        assertArrayEquals(Samples.body(10), Samples.content(found.get(0)));
        assertEquals(List.of(entry), Samples.entries(store));
        Samples.dequeue(store, entry);
        assertEquals(List.of(), Samples.messages(store));
    }

    private record Numbered(long number, StoredMessage<?> stored) implements EnqueueableMessage {
        @Override
        public long getMessageNumber() {
            return number;
        }

        @Override
        public boolean isPersistent() {
            return true;
        }

        @Override
        public StoredMessage getStoredMessage() {
            return stored;
        }
    }

    @Test
    void idsRiseAcrossRestartsOfBrokerAndService() throws Exception {
        long last = 0;
        for (int round = 0; round < 3; round++) {
            for (int n = 0; n < 15_000; n++) {
                long next = store.getNextMessageId();
                assertTrue(next > last, next + " after " + last);
                last = next;
            }
            if (round == 0) {
                restartBroker();
            } else {
                restartBoth();
            }
        }
    }
}
