package sparkstore.brokerj.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import org.apache.qpid.server.protocol.v0_10.MessageTransferMessage;
import org.apache.qpid.server.store.ConfiguredObjectRecord;
import org.apache.qpid.server.store.ConfiguredObjectRecordImpl;
import org.apache.qpid.server.store.MessageEnqueueRecord;
import org.apache.qpid.server.store.StoredMessage;
import org.apache.qpid.server.store.Transaction.DequeueRecord;
import org.apache.qpid.server.store.Transaction.EnqueueRecord;
import org.apache.qpid.server.store.Transaction.StoredXidRecord;
import org.apache.qpid.server.store.Transaction;
import org.junit.jupiter.api.BeforeEach;
import sparkstore.brokerj.store.Samples.SampleQueue;

/** One message waits on {@code in}, and a branch moves it to {@code out}, with a copy. */
abstract class BranchTestCase extends StoreTestCase {
    final SampleQueue in = Samples.queue("in");
    final SampleQueue out = Samples.queue("out");
    final SampleQueue copies = Samples.queue("copies");
    MessageEnqueueRecord taken;
    MessageTransferMessage put;
    /** As the broker prepares it together with the branch, and commits it later. */
    Transaction pending;

    @BeforeEach
    void oneMessageWaits() {
        taken = Samples.enqueue(store, in, Samples.message(store, Samples.body(10)));
        put = Samples.message(store, Samples.body(20));
    }

    void create(SampleQueue queue) {
        configuration.create(record(queue));
    }

    static ConfiguredObjectRecord record(SampleQueue queue) {
        return new ConfiguredObjectRecordImpl(
                queue.getId(), "Queue", Map.of("name", queue.getName()), Map.of());
    }

    SparkStoreMessageStore ours() {
        return (SparkStoreMessageStore) store;
    }

    BranchesInDoubt branches() {
        return ours().session().branches();
    }

    /** A branch that moves a message from {@code in} to {@code out}, with a copy. */
    StoredXidRecord prepare(long format) {
        Transaction prepare = store.newTransaction();
        StoredXidRecord xid = prepare.recordXid(format, new byte[] {1}, new byte[] {2},
                new EnqueueRecord[] {
                    new Samples.Enlisted(out, put), new Samples.Enlisted(copies, put)},
                new DequeueRecord[] {() -> taken});
        prepare.commitTran();
        pending = store.newTransaction();
        pending.enqueueMessage(out, put);
        pending.enqueueMessage(copies, put);
        pending.dequeueMessage(taken);
        return xid;
    }

    void rollBack(StoredXidRecord xid) {
        Transaction rollback = store.newTransaction();
        rollback.removeXid(xid);
        rollback.commitTran();
    }

    Map<String, String> objects() {
        return ours().session().configured().all(ConfiguredObjects.XID);
    }

    void assertMoved() throws Exception {
        restartBoth();
        assertEquals(List.of(), Samples.branches(store));
        assertEquals(Map.of(), objects());
        List<EntryRecord> entries = Samples.entries(store);
        assertEquals(2, entries.size());
        assertTrue(entries.containsAll(List.of(
                new EntryRecord(out.getId(), put.getMessageNumber()),
                new EntryRecord(copies.getId(), put.getMessageNumber()))));
        List<StoredMessage<?>> messages = Samples.messages(store);
        assertEquals(1, messages.size());
        assertArrayEquals(Samples.body(20), Samples.content(messages.get(0)));
    }

    void assertUntouched() throws Exception {
        assertEquals(List.of(taken), Samples.entries(store));
        restartBoth();
        assertEquals(List.of(), Samples.branches(store));
        assertEquals(List.of(taken), Samples.entries(store));
        assertEquals(List.of(taken.getMessageNumber()),
                Samples.messages(store).stream().map(StoredMessage::getMessageNumber).toList());
    }
}
