package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction.DequeueRecord;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;
import org.apache.qpid.server.store.Transaction.StoredXidRecord;
import org.apache.qpid.server.store.Transaction;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.Refused;

/** The service dies while a branch is prepared or decided: both happen once, or not at all. */
@Timeout(120)
class BranchLossTest extends BranchTestCase {
    /** From now on nobody waits longer for a service that is away. */
    private void waitAtMost(Duration limit) {
        service.retryTimeout = limit;
        restartBroker();
        put = Samples.message(store, Samples.body(20));
    }

    /** The service dies while the coordinator waits, and the coordinator asks again. */
    @Test
    void aCommitOfUnknownOutcomeIsAskedForAgain() throws Exception {
        waitAtMost(Duration.ofSeconds(1));
        StoredXidRecord xid = prepare(7);
        commitWhileTheServiceDies(xid);
        pending.removeXid(xid);
        pending.commitTran();
        assertMoved();
    }

    @Test
    void aCommitOfUnknownOutcomeThatTheServiceTookIsDone() throws Exception {
        waitAtMost(Duration.ofSeconds(1));
        StoredXidRecord xid = prepare(7);
        commitWhileTheServiceDies(xid);
        byte[] packed = StoredXid.of(StoredXid.key(xid)).packed();
        Failures.await(ours().session().client().decide(packed, true, true));
        Transaction rollback = store.newTransaction();
        rollback.removeXid(xid);
        assertThrows(Refused.class, rollback::commitTran);
        pending.removeXid(xid);
        pending.commitTran();
        assertEquals(List.of(), Samples.branches(store));
        assertMoved();
    }

    private void commitWhileTheServiceDies(StoredXidRecord xid) throws Exception {
        pending.removeXid(xid);
        assertUnknown(pending);
    }

    private void assertUnknown(Transaction transaction) throws Exception {
        service.suspend();
        FutureTask<Void> commit = new FutureTask<>(transaction::commitTran, null);
        Thread coordinator = new Thread(commit);
        coordinator.start();
        while (coordinator.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
        service.kill();
        Throwable unknown = assertThrows(ExecutionException.class, commit::get).getCause();
        assertTrue(unknown.getMessage().contains("outcome unknown"), unknown.getMessage());
        service.start();
    }

    @Test
    void aBranchOfWhichNobodyKnowsWhetherItWasPreparedHoldsNothing() throws Exception {
        waitAtMost(Duration.ofSeconds(1));
        Transaction prepare = store.newTransaction();
        StoredXidRecord xid = prepare.recordXid(7, new byte[] {1}, new byte[] {2},
                new EnqueueRecord[0], new DequeueRecord[] {() -> taken});
        assertUnknown(prepare);
        assertEquals(List.of(), Samples.branches(store));
        StoredXid prepared = (StoredXid) prepare(7);
        branches().doubt(prepared);
        Samples.dequeue(store, taken);
        assertEquals(xid, prepared);
        assertEquals(List.of(), Samples.entries(store));
        restartBoth();
        assertEquals(List.of(), Samples.branches(store));
    }

    /** 40 MB go ahead of it in pieces: whoever dies, they and the branch are there, or sent again. */
    @Test
    void aLargeBranchIsInPiecesWhenTheServiceDies() throws Exception {
        byte[] body = Samples.body(40_000_000);
        put = Samples.message(store, body);
        CompletableFuture<StoredXidRecord> prepared =
                CompletableFuture.supplyAsync(() -> prepare(7));
        service.kill();
        service.start();
        StoredXidRecord xid = prepared.get(60, TimeUnit.SECONDS);
        restartBoth();
        assertEquals(List.of(xid), Samples.branches(store));
        assertEquals(List.of(taken), Samples.entries(store));
        StoredMessage<?> found = store.newMessageStoreReader().getMessage(put.getMessageNumber());
        assertArrayEquals(body, Samples.content(found));
    }
}
