package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.store.Event;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.MessageStore.MessageStoreReader;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction;
import org.apache.qpid.server.store.Transaction.DequeueRecord;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;
import org.apache.qpid.server.store.TransactionLogResource;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** What the broker relies on in a message store, point by point, against the real service. */
@Timeout(120)
class MessageContractTest {
    @TempDir Path folder;
    private RealService service;
    private SparkStoreConfigurationStore configuration;
    private MessageStore store;

    @BeforeEach
    void open() throws Exception {
        service = new RealService(folder);
        start(service.store());
    }

    private void start(SparkStoreConfigurationStore made) {
        configuration = made;
        configuration.init(null);
        configuration.upgradeStoreStructure();
        configuration.openConfigurationStore(record -> { });
        store = configuration.getMessageStore();
        store.openMessageStore(null);
        store.upgradeStoreStructure();
    }

    @AfterEach
    void close() throws Exception {
        if (service != null) {
            stop();
            service.close();
        }
    }

    private void stop() {
        store.closeMessageStore();
        configuration.closeConfigurationStore();
    }

    private void restartBroker() {
        stop();
        start(service.store());
    }

    private void restartBoth() throws Exception {
        stop();
        service.kill();
        service.start();
        start(service.store());
    }

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

    // ------------------------------------------------------- 6: removal, and delete listeners

    @Test
    void removeTellsListenersWhileTheMetadataCanBeRead() {
        MessageTransferMessage message = Samples.message(store, Samples.body(10));
        MessageEnqueueRecord entry = Samples.enqueue(store, Samples.queue("q"), message);
        message.getStoredMessage().flowToDisk();
        List<Long> told = new ArrayList<>();
        MessageStore.MessageDeleteListener listener = removed -> {
            assertNotNull(removed.getMetaData());
            told.add(removed.getMessageNumber());
        };
        store.addMessageDeleteListener(listener);
        Samples.dequeue(store, entry);
        long before = store.getInMemorySize();
        assertTrue(before >= 0);
        removeBeforeItIsForgotten(message.getStoredMessage());
        assertEquals(List.of(message.getMessageNumber()), told);
        assertEquals(0, store.getInMemorySize());
        store.removeMessageDeleteListener(listener);
        StoredMessage<?> never = Samples.message(store, Samples.body(10)).getStoredMessage();
        never.remove();
        assertEquals(1, told.size());
        assertEquals(0, store.getInMemorySize());
    }

    private static void removeBeforeItIsForgotten(StoredMessage<?> message) {
        message.remove();
        message.remove();
    }

    // --------------------------------------------------- 7, 8: evacuation, reload, accounting

    @Test
    void theSizeInMemoryIsExact() {
        MessageTransferMessage message = Samples.message(store, Samples.body(1000));
        StoredMessage<?> stored = message.getStoredMessage();
        int metadata = stored.getMetadataSize();
        assertEquals(metadata + 1000, store.getInMemorySize());
        Samples.enqueue(store, Samples.queue("q"), message);
        assertEquals(metadata + 1000, stored.getInMemorySize());
        assertTrue(stored.isInContentInMemory());
        assertTrue(stored.flowToDisk());
        assertEquals(0, stored.getInMemorySize());
        assertEquals(0, store.getInMemorySize());
        assertEquals(metadata + 1000, store.getBytesEvacuatedFromMemory());
        assertFalse(stored.isInContentInMemory());
        assertNotNull(stored.getMetaData());
        assertEquals(metadata, store.getInMemorySize());
        assertArrayEquals(Samples.body(1000), Samples.content(stored));
        assertEquals(metadata + 1000, store.getInMemorySize());
        store.resetStatistics();
        assertEquals(0, store.getBytesEvacuatedFromMemory());
        stored.remove();
        assertEquals(0, store.getInMemorySize());
    }

    @Test
    void contentIsReadBackFromAnyThreadAtOnce() throws Exception {
        MessageTransferMessage message = Samples.message(store, Samples.body(50_000));
        Samples.enqueue(store, Samples.queue("q"), message);
        StoredMessage<?> stored = message.getStoredMessage();
        ExecutorService threads = Executors.newFixedThreadPool(8);
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 200; n++) {
            all.add(threads.submit(() -> {
                stored.flowToDisk();
                assertArrayEquals(Samples.body(50_000), Samples.content(stored));
            }));
        }
        for (Future<?> each : all) {
            each.get(60, TimeUnit.SECONDS);
        }
        threads.shutdown();
        stored.flowToDisk();
        assertEquals(0, store.getInMemorySize());
    }

    // -------------------------------------------------------------------- 9, 10: kind and quota

    @Test
    void itIsPersistent() {
        assertTrue(store.isPersistent());
        assertEquals(folder.resolve("root").toString(), store.getStoreLocation());
        assertEquals(folder.resolve("root").toFile(), store.getStoreLocationAsFile());
    }

    @Test
    void overfullIsToldOnce() throws Exception {
        stop();
        start(service.store("host", 1));
        stop();
        SparkStoreConfigurationStore small = service.store("host", 1);
        List<Event> events = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch told = new CountDownLatch(1);
        small.getMessageStore().addEventListener(event -> {
            events.add(event);
            told.countDown();
        }, Event.PERSISTENT_MESSAGE_SIZE_OVERFULL, Event.PERSISTENT_MESSAGE_SIZE_UNDERFULL);
        start(small);
        assertTrue(told.await(20, TimeUnit.SECONDS));
        Samples.enqueue(store, Samples.queue("q"), Samples.message(store, Samples.body(10)));
        assertEquals(List.of(Event.PERSISTENT_MESSAGE_SIZE_OVERFULL), events);
    }

    // --------------------------------------------------------------------------------- 11: XA

    private record Enlisted(TransactionLogResource getResource, EnqueueableMessage getMessage)
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

    @Test
    void aPreparedBranchSurvivesAndCommits() throws Exception {
        SampleQueue queue = Samples.queue("q");
        MessageEnqueueRecord taken = Samples.enqueue(
                store, queue, Samples.message(store, Samples.body(10)));
        MessageTransferMessage put = Samples.message(store, Samples.body(777));
        Transaction prepare = store.newTransaction();
        Transaction.StoredXidRecord xid = prepare.recordXid(7, new byte[] {1, 2}, new byte[] {3},
                new EnqueueRecord[] {new Enlisted(queue, put)},
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
        commit.enqueueMessage(queue, asMessage(recovered));
        commit.dequeueMessage(taken);
        commit.removeXid(found.get(0));
        commit.commitTran();
        restartBoth();
        assertEquals(List.of(new EntryRecord(queue.getId(), put.getMessageNumber())),
                Samples.entries(store));
        assertArrayEquals(Samples.body(777), Samples.content(Samples.messages(store).get(0)));
        store.newMessageStoreReader().visitDistributedTransactions((a, b, c) -> {
            throw new AssertionError("the branch ended");
        });
    }

    @SuppressWarnings("unchecked")
    private static EnqueueableMessage<?> asMessage(StoredMessage<?> stored) {
        return new MessageTransferMessage(
                (StoredMessage<org.apache.qpid.server.protocol.v0_10.MessageMetaData_0_10>) stored,
                null);
    }

    // ----------------------------------------------------------- 13, 14: readers, repeatedly

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
        assertEquals(java.util.Set.of(first, second), java.util.Set.copyOf(Samples.entries(store)));
    }

    // ------------------------------------------------------------- the service dies under load

    @Test
    void theServiceIsKilledUnderLoadAndEverythingIsThereOnce() throws Exception {
        SampleQueue queue = Samples.queue("q");
        int threadCount = 8;
        int each = 150;
        ExecutorService threads = Executors.newFixedThreadPool(threadCount);
        List<Future<List<EntryRecord>>> work = new ArrayList<>();
        CountDownLatch half = new CountDownLatch(threadCount * each / 3);
        for (int n = 0; n < threadCount; n++) {
            work.add(threads.submit(() -> {
                List<EntryRecord> kept = new ArrayList<>();
                for (int m = 0; m < each; m++) {
                    MessageTransferMessage message = Samples.message(store, Samples.body(200));
                    EntryRecord entry = (EntryRecord) Samples.enqueue(store, queue, message);
                    half.countDown();
                    if (m % 2 == 0) {
                        Samples.dequeue(store, entry);
                    } else {
                        kept.add(entry);
                    }
                }
                return kept;
            }));
        }
        half.await();
        service.kill();
        service.start();
        List<EntryRecord> expected = new ArrayList<>();
        for (Future<List<EntryRecord>> thread : work) {
            expected.addAll(thread.get(60, TimeUnit.SECONDS));
        }
        threads.shutdown();
        expected.sort(java.util.Comparator.comparing(EntryRecord::messageNumber));
        assertEquals(expected, Samples.entries(store));
        restartBoth();
        assertEquals(expected, Samples.entries(store));
        assertEquals(expected.size(), Samples.messages(store).size());
    }

    @Test
    void aLargeMessageIsInPiecesWhenTheServiceDies() throws Exception {
        byte[] body = Samples.body(40_000_000);
        MessageTransferMessage message = Samples.message(store, body);
        SampleQueue queue = Samples.queue("q");
        Transaction transaction = store.newTransaction();
        transaction.enqueueMessage(queue, message);
        CompletableFuture<Void> sent = CompletableFuture.runAsync(transaction::commitTran);
        service.kill();
        service.start();
        sent.get(60, TimeUnit.SECONDS);
        restartBoth();
        List<StoredMessage<?>> found = Samples.messages(store);
        assertEquals(1, found.size());
        assertArrayEquals(body, Samples.content(found.get(0)));
    }
}
