package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.service.Refused;
import sparkstore.brokerj.store.Samples.SampleQueue;

/**
 * Commits that wait while the service is away reach it in few frames, and each is still a commit by
 * itself.
 */
@Timeout(120)
class GatheredCommitsTest extends StoreTestCase {
    private static final int COUNT = 300;

    private final SampleQueue queue = Samples.queue("q");
    private final List<EntryRecord> expected = new ArrayList<>();

    @BeforeEach
    void useTheQueue() {
        expected.add((EntryRecord) Samples.enqueue(store, queue, message(0)));
    }

    private MessageTransferMessage message(int size) {
        return Samples.message(store, Samples.body(size));
    }

    private static void assertDone(List<CompletableFuture<Integer>> commits) throws Exception {
        for (int n = 0; n < commits.size(); n++) {
            assertEquals(n, commits.get(n).get(60, TimeUnit.SECONDS));
        }
    }

    private List<CompletableFuture<Integer>> enqueueMany() {
        List<CompletableFuture<Integer>> commits = new ArrayList<>();
        for (int n = 0; n < COUNT; n++) {
            Transaction transaction = store.newTransaction();
            expected.add((EntryRecord) transaction.enqueueMessage(queue, message(n)));
            commits.add(transaction.commitTranAsync(n));
        }
        return commits;
    }

    @Test
    void allOfThemAreThereInTheirOrderWithTheirContents() throws Exception {
        service.kill();
        List<CompletableFuture<Integer>> commits = enqueueMany();
        service.start();
        assertDone(commits);
        assertEquals(expected, Samples.entries(store));
        restartBoth();
        assertEquals(expected, Samples.entries(store));
        List<StoredMessage<?>> messages = Samples.messages(store);
        for (int n = 0; n < COUNT; n++) {
            assertArrayEquals(Samples.body(n), Samples.content(messages.get(n + 1)));
        }
    }

    @Test
    void whatIsTakenOffTogetherIsGone() throws Exception {
        assertDone(enqueueMany());
        service.kill();
        List<CompletableFuture<Integer>> commits = new ArrayList<>();
        for (int n = 0; n < COUNT; n++) {
            Transaction transaction = store.newTransaction();
            transaction.dequeueMessage(expected.get(n));
            commits.add(transaction.commitTranAsync(n));
        }
        service.start();
        assertDone(commits);
        List<EntryRecord> left = expected.subList(COUNT, COUNT + 1);
        assertEquals(left, Samples.entries(store));
        restartBoth();
        assertEquals(left, Samples.entries(store));
    }

    @Test
    void oneThatIsRefusedAmongThemFailsAlone() throws Exception {
        MessageTransferMessage twice = message(10);
        expected.add((EntryRecord) Samples.enqueue(store, queue, twice));
        service.kill();
        List<CompletableFuture<Integer>> before = enqueueMany();
        Transaction again = store.newTransaction();
        again.enqueueMessage(queue, twice);
        CompletableFuture<Boolean> refused = again.commitTranAsync(true);
        List<CompletableFuture<Integer>> after = enqueueMany();
        service.start();
        assertDone(before);
        assertDone(after);
        Throwable why = assertThrows(
                ExecutionException.class, () -> refused.get(60, TimeUnit.SECONDS)).getCause();
        assertTrue(why instanceof Refused, why.toString());
        assertEquals(expected, Samples.entries(store));
    }
}
