package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.store.ConfiguredObjectRecord;
import org.apache.qpid.server.store.ConfiguredObjectRecordImpl;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** The service dies under load: nothing is lost, nothing is there twice. */
@Timeout(120)
class ServiceLossTest extends StoreTestCase {
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

    @Test
    void aQueueWhoseEndIsUnknownIsThereAgainForTheNextMessage() throws Exception {
        service.retryTimeout = Duration.ofSeconds(2);
        restartBroker();
        SampleQueue queue = Samples.queue("q");
        ConfiguredObjectRecord record = new ConfiguredObjectRecordImpl(
                queue.getId(), "Queue", Map.of("name", "q"), Map.of());
        configuration.create(record);
        Samples.enqueue(store, queue, Samples.message(store, Samples.body(1)));
        service.suspend();
        FutureTask<UUID[]> removed = new FutureTask<>(() -> configuration.remove(record));
        Thread admin = new Thread(removed);
        admin.start();
        while (admin.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
        service.kill();
        Throwable unknown = assertThrows(ExecutionException.class, removed::get).getCause();
        assertTrue(unknown.getMessage().contains("outcome unknown"), unknown.getMessage());
        service.start();
        MessageTransferMessage next = Samples.message(store, Samples.body(2));
        EntryRecord entry = (EntryRecord) Samples.enqueue(store, queue, next);
        assertTrue(Samples.entries(store).contains(entry));
        configuration.remove(record);
        assertEquals(List.of(), Samples.entries(store));
    }
}
