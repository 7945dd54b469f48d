package sparkstore.brokerj.service;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.util.ConnectionScopedRuntimeException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import sparkstore.brokerj.service.FakeService.Fate;
import sparkstore.brokerj.wire.Packer;
import sparkstore.brokerj.wire.RecordBatch;

/** A service that is silent, slow or away: who waits for how long, and what is told then. */
@Timeout(60)
class ServiceAwayTest extends ConnectionTestCase {
    @Test
    void aServiceThatNeverAnswersIsLeftAndTheRequestIsSentAgain() throws Exception {
        AtomicBoolean wasSilent = new AtomicBoolean();
        service.fate = number -> wasSilent.getAndSet(true) ? Fate.ANSWER : Fate.KEEP_SILENT;
        connect(0, 300);
        assertDone(send());
        assertEquals(List.of(1L), service.decided());
        assertEquals(2, service.hellos.size());
    }

    @Test
    void aServiceThatNeverGreetsIsNoService() {
        service.greets = false;
        StoreException failure = assertThrows(StoreException.class,
                () -> new StoreClient(settings(700, 0, 200, null)));
        assertTrue(failure.getMessage().contains("is 'sparkstore serve' running?"),
                failure.getMessage());
    }

    @Test
    void ofAPairTheOneThatServesIsUsed() throws Exception {
        String nobody = "unix:" + folder.resolve("nobody");
        client = new StoreClient(settings(nobody + ",unix:" + service.path, 10_000, 0, 10_000, null));
        assertDone(send());
        assertThrows(IllegalArgumentException.class, () -> new ServiceAddress(nobody + ",tcp:b"));
    }

    @Test
    void nobodyListening() throws Exception {
        service.close();
        Files.deleteIfExists(service.path);
        StoreException failure = assertThrows(StoreException.class,
                () -> new StoreClient(settings(300, 0, 200, null)));
        assertTrue(failure.getMessage().startsWith("no store service at unix:"),
                failure.getMessage());
    }

    @Test
    void withoutATimeoutSendsWaitForTheServiceToComeBack() throws Exception {
        connect(0, 10_000);
        service.close();
        Future<?> waiting = send();
        assertThrows(java.util.concurrent.TimeoutException.class,
                () -> waiting.get(500, TimeUnit.MILLISECONDS));
        Files.deleteIfExists(service.path);
        service = new FakeService(service.path);
        assertDone(waiting);
        assertEquals(List.of(1L), service.decided());
    }

    @Test
    void afterTheRetryTimeoutWhatWasNotDecidedIsWithdrawn() throws Exception {
        service.fate = number -> Fate.KEEP_SILENT;
        connect(1_000, 10_000);
        Future<?> sent = send();
        assertEquals(1L, service.received.take());
        service.close();
        assertInstanceOf(ConnectionScopedRuntimeException.class, failureOf(sent));
        assertFalse(failureOf(sent) instanceof Withdrawn);
        assertTrue(failureOf(sent).getMessage().contains("outcome unknown"));
        Future<?> neverSent = send();
        assertInstanceOf(Withdrawn.class, failureOf(neverSent));
        Files.deleteIfExists(service.path);
        service = new FakeService(service.path);
        assertDone(send());
        assertEquals(List.of(1L, 2L, 3L), service.decided());
        byte[] nothing = new Packer(1).array(0).toBytes();
        assertArrayEquals(nothing, service.said.get(1L));
        assertArrayEquals(nothing, service.said.get(2L));
        assertTrue(service.said.get(3L).length > nothing.length);
    }

    @Test
    void afterTheRetryTimeoutWhatWasDecidedStaysSo() throws Exception {
        service.fate = number -> {
            service.greets = false;
            return Fate.LOSE_AFTER;
        };
        connect(500, 60_000);
        Future<?> sent = send();
        assertTrue(failureOf(sent).getMessage().contains("outcome unknown"));
        byte[] said = service.said.get(1L);
        service.fate = number -> Fate.ANSWER;
        service.greets = true;
        service.restart();
        assertDone(send());
        assertEquals(List.of(1L, 2L), service.decided());
        assertArrayEquals(said, service.said.get(1L));
    }

    @Test
    void aTransactionInPartsIsAbortedIfItsEndWasNeverSent() throws Exception {
        connect(1_000, 10_000);
        service.close();
        assertInstanceOf(ConnectionScopedRuntimeException.class, failureOf(send()));
        RecordBatch batch = new RecordBatch().configured("xid", "key", "{}");
        byte[] header = new Packer(1).nil().toBytes();
        for (int n = 1; n <= 50; n++) {
            batch.enqueued("q", n, header, new byte[200_000]);
        }
        assertInstanceOf(Withdrawn.class, failureOf(client.submit(batch, null, true)));
        Files.deleteIfExists(service.path);
        service = new FakeService(service.path);
        service.hellos.take();
        assertDone(send());
        long end = service.decided().size() - 1;
        assertArrayEquals(new Packer(3).integer(1).bool(false).array(0).toBytes(),
                service.said.get(end));
    }

    @Test
    void aFullWindowBlocksAndThenGoesOn() throws Exception {
        service.maxWaiting = 10;
        service.fate = number -> number <= 10 ? Fate.KEEP_SILENT : Fate.ANSWER;
        connect(0, 60_000);
        for (int n = 0; n < 10; n++) {
            send();
        }
        Future<Future<?>> eleventh = CompletableFuture.supplyAsync(this::send);
        assertThrows(java.util.concurrent.TimeoutException.class,
                () -> eleventh.get(300, TimeUnit.MILLISECONDS));
        service.fate = number -> Fate.ANSWER;
        service.restart();
        assertDone(eleventh.get(20, TimeUnit.SECONDS));
        assertEquals(upTo(11), service.decided());
    }

    @Test
    void closingTellsWhoWaitsThatTheOutcomeIsUnknown() {
        service.fate = number -> Fate.KEEP_SILENT;
        connect(0, 60_000);
        Future<?> waiting = send();
        client.close();
        assertInstanceOf(ConnectionScopedRuntimeException.class, failureOf(waiting));
        client.close();
        assertThrows(ConnectionScopedRuntimeException.class, this::send);
    }
}
