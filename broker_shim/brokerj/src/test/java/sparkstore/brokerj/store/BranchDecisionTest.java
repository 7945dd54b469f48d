package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction.DequeueRecord;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;
import org.apache.qpid.server.store.Transaction.StoredXidRecord;
import org.apache.qpid.server.store.Transaction;
import org.apache.qpid.server.util.ConnectionScopedRuntimeException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.service.Refused;

/** XA branches of the store's own: how one is decided, and what it holds until then. */
@Timeout(120)
class BranchDecisionTest extends BranchTestCase {
    @Test
    void aBranchIsTheStoresOwnAndCommitsInTheSameRun() throws Exception {
        StoredXidRecord xid = prepare(7);
        assertEquals(Map.of(), objects());
        assertEquals(List.of(xid), Samples.branches(store));
        assertTrue(put.getStoredMessage().flowToDisk());
        assertArrayEquals(Samples.body(20), Samples.content(put.getStoredMessage()));
        pending.removeXid(xid);
        pending.commitTran();
        assertEquals(List.of(), Samples.branches(store));
        Samples.enqueue(store, in, put);
        Samples.dequeue(store, new EntryRecord(in.getId(), put.getMessageNumber()));
        assertMoved();
    }

    @Test
    void aBranchThatIsRolledBackLeavesNothingAndItsNameIsFree() throws Exception {
        rollBack(prepare(7));
        put.getStoredMessage().remove();
        put = Samples.message(store, Samples.body(20));
        rollBack(prepare(7));
        put.getStoredMessage().remove();
        assertUntouched();
    }

    @Test
    void whatABranchTookNobodyElseGets() throws Exception {
        StoredXidRecord xid = prepare(7);
        assertThrows(Refused.class, () -> Samples.dequeue(store, taken));
        rollBack(xid);
        Samples.dequeue(store, taken);
        assertEquals(List.of(), Samples.entries(store));
    }

    @Test
    void aTransactionThatIsNotWhatWasPreparedDoesNotDecideIt() throws Exception {
        StoredXidRecord xid = prepare(7);
        Transaction other = store.newTransaction();
        other.enqueueMessage(in, put);
        other.removeXid(xid);
        String message = assertThrows(
                ConnectionScopedRuntimeException.class, other::commitTran).getMessage();
        assertTrue(message.contains("something else"), message);
        assertEquals(List.of(xid), Samples.branches(store));
        pending.removeXid(xid);
        pending.commitTran();
        assertMoved();
    }

    /** A format that AMQP 0-10 allows and the store does not, and a branch that does nothing. */
    @Test
    void whatTheStoreCannotKeepAsABranchIsAConfiguredObject() throws Exception {
        StoredXidRecord xid = prepare(1L << 31);
        Transaction empty = store.newTransaction();
        StoredXidRecord nothing = empty.recordXid(
                7, new byte[] {3}, new byte[] {}, new EnqueueRecord[0], new DequeueRecord[0]);
        empty.commitTran();
        restartBoth();
        assertEquals(2, objects().size());
        assertEquals(Map.of(), branches().all());
        assertEquals(List.of(xid, nothing), Samples.branches(store));
        rollBack(nothing);
        Transaction commit = store.newTransaction();
        for (StoredMessage<?> each : Samples.messages(store)) {
            if (each.getMessageNumber() == put.getMessageNumber()) {
                commit.enqueueMessage(out, Samples.asMessage(each));
                commit.enqueueMessage(copies, Samples.asMessage(each));
            }
        }
        commit.dequeueMessage(taken);
        commit.removeXid(xid);
        commit.commitTran();
        assertMoved();
    }

    /** As an earlier version kept it: the message is staged, the branch is an object. */
    @Test
    void aBranchOfAnEarlierVersionBecomesTheStoresOwnAtTheNextStart() throws Exception {
        create(out);
        create(copies);
        StoredXidRecord large = prepare(1L << 31);
        String detail = objects().get(StoredXid.key(large));
        StoredXid xid = new StoredXid(7, new byte[] {1}, new byte[] {2});
        ours().session().configure(ConfiguredObjects.XID, Map.of(StoredXid.key(xid), detail));
        rollBack(large);
        restartBoth();
        assertEquals(Map.of(), objects());
        assertEquals(List.of(xid), Samples.branches(store));
        restartBroker();
        assertEquals(List.of(xid), Samples.branches(store));
        assertEquals(List.of(taken), Samples.entries(store));
        Transaction commit = store.newTransaction();
        store.newMessageStoreReader().visitDistributedTransactions((found, enqueues, dequeues) -> {
            StoredMessage<?> message = store.newMessageStoreReader().getMessage(
                    enqueues[0].getMessage().getMessageNumber());
            for (EnqueueRecord each : enqueues) {
                commit.enqueueMessage(each.getResource(), Samples.asMessage(message));
            }
            commit.dequeueMessage(dequeues[0].getEnqueueRecord());
            commit.removeXid(found);
            return true;
        });
        commit.commitTran();
        assertMoved();
    }

    @Test
    void aQueueOfABranchStaysUntilTheBranchIsDecided() throws Exception {
        create(in);
        StoredXidRecord xid = prepare(7);
        String message =
                assertThrows(Refused.class, () -> configuration.remove(record(in))).getMessage();
        assertTrue(message.contains("used by the prepared branch 7:01:02"), message);
        pending.removeXid(xid);
        pending.commitTran();
        configuration.remove(record(in));
        assertMoved();
        assertNull(ours().session().queueName(in.getId()));
    }

    @Test
    void aRootIsEmptiedWithWhatIsInDoubt() throws Exception {
        prepare(7);
        stop();
        configuration.onDelete(null);
        start(service.store());
        assertEquals(List.of(), Samples.branches(store));
        assertEquals(List.of(), Samples.entries(store));
    }
}
