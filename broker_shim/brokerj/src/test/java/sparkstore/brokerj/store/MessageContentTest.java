package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.store.Event;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** Removal, evacuation, sizes and quota: points 6 to 10 of the contract, on the real service. */
@Timeout(120)
class MessageContentTest extends StoreTestCase {
    private static final long MIB = 1 << 20;

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

    @Test
    void aRemovedMessageIsOnNoQueueAnyMore() throws Exception {
        SampleQueue first = Samples.queue("first");
        SampleQueue second = Samples.queue("second");
        MessageTransferMessage message = Samples.message(store, Samples.body(10));
        Samples.enqueue(store, first, message);
        Samples.enqueue(store, second, message);
        MessageEnqueueRecord kept = Samples.enqueue(
                store, second, Samples.message(store, Samples.body(20)));
        Samples.enqueue(store, first, Samples.message(store, Samples.body(30)));
        List<Long> told = new ArrayList<>();
        store.addMessageDeleteListener(removed -> told.add((long) removed.getContentSize()));
        message.getStoredMessage().remove();
        assertEquals(List.of(10L), told);
        restartBoth();
        List<StoredMessage<?>> found = Samples.messages(store);
        assertEquals(2, Samples.entries(store).size());
        assertEquals(2, found.size());
        found.get(1).remove();
        assertEquals(List.of(kept), Samples.entries(store));
        restartBroker();
        assertEquals(List.of(kept), Samples.entries(store));
        assertEquals(1, Samples.messages(store).size());
    }

    @Test
    void aMessageIsOneObjectHoweverOftenItIsFound() {
        Samples.enqueue(store, Samples.queue("q"), Samples.message(store, Samples.body(10)));
        restartBroker();
        List<StoredMessage<?>> found = Samples.messages(store);
        assertEquals(found, Samples.messages(store));
        assertEquals(found.get(0), store.newMessageStoreReader()
                .getMessage(found.get(0).getMessageNumber()));
    }

    private static void removeBeforeItIsForgotten(StoredMessage<?> message) {
        message.remove();
        message.remove();
    }

    @Test
    void whoStillHoldsAMessageThatLeftItsQueueReadsIt() {
        for (int size : new int[] {0, 1000, 3_000_000}) {
            MessageTransferMessage message = Samples.message(store, Samples.body(size));
            MessageEnqueueRecord entry = Samples.enqueue(store, Samples.queue("q" + size), message);
            Samples.dequeue(store, entry);
            StoredMessage<?> stored = message.getStoredMessage();
            assertTrue(stored.flowToDisk());
            assertArrayEquals(Samples.body(size), Samples.content(stored));
            stored.remove();
            assertEquals(0, store.getInMemorySize());
        }
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

    /** The enqueue is answered amid the parts of the content, by the thread that these come by. */
    @Test
    void contentIsReadBackWhileAnEnqueueOfTheMessageIsUnderWay() throws Exception {
        byte[] body = Samples.body(20_000_000);
        MessageTransferMessage message = Samples.message(store, body);
        SampleQueue other = Samples.queue("other");
        Samples.enqueue(store, other, Samples.message(store, Samples.body(1)));
        Samples.enqueue(store, Samples.queue("q"), message);
        assertTrue(message.getStoredMessage().flowToDisk());
        Transaction transaction = store.newTransaction();
        transaction.enqueueMessage(other, message);
        message.getStoredMessage().getMetaData();
        service.suspend();
        Future<Integer> enqueued = transaction.commitTranAsync(1);
        FutureTask<byte[]> content =
                new FutureTask<>(() -> Samples.content(message.getStoredMessage()));
        Thread reader = new Thread(content);
        reader.start();
        while (reader.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
        service.resume();
        assertEquals(1, enqueued.get(20, TimeUnit.SECONDS));
        assertArrayEquals(body, content.get(20, TimeUnit.SECONDS));
    }

    // -------------------------------------------------------------------- 9, 10: kind and quota

    @Test
    void itIsPersistent() {
        assertTrue(store.isPersistent());
        assertEquals(folder.resolve("root").toString(), store.getStoreLocation());
        assertEquals(folder.resolve("root").toFile(), store.getStoreLocationAsFile());
    }

    /**
     * The disk of the root is filled and emptied by a file that the store knows nothing of. The
     * limits leave room for another file of the write-ahead log, which is made with the first record.
     */
    @Test
    void overfullAndUnderfullAreToldOnceEach() throws Exception {
        long empty = configuration.session().client().sizeOnDisk().get(20, TimeUnit.SECONDS);
        stop();
        SparkStoreConfigurationStore small =
                service.store("host", null, empty + 48 * MIB, empty + 64 * MIB);
        BlockingQueue<Event> events = new LinkedBlockingQueue<>();
        small.getMessageStore().addEventListener(events::add,
                Event.PERSISTENT_MESSAGE_SIZE_OVERFULL, Event.PERSISTENT_MESSAGE_SIZE_UNDERFULL);
        start(small);
        Path ballast = service.root().resolve("ballast");
        for (int round = 0; round < 2; round++) {
            Files.write(ballast, new byte[100 * (int) MIB]);
            assertEquals(Event.PERSISTENT_MESSAGE_SIZE_OVERFULL, events.poll(20, TimeUnit.SECONDS));
            Samples.enqueue(store, Samples.queue("q"), Samples.message(store, Samples.body(10)));
            Files.delete(ballast);
            assertEquals(Event.PERSISTENT_MESSAGE_SIZE_UNDERFULL, events.poll(20, TimeUnit.SECONDS));
        }
        assertEquals(List.of(), List.copyOf(events));
    }
}
