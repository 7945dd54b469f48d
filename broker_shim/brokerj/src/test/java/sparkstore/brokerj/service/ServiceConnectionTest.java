package sparkstore.brokerj.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.LongStream;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.util.ConnectionScopedRuntimeException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import sparkstore.brokerj.service.FakeService.Fate;
import sparkstore.brokerj.wire.Packer;
import sparkstore.brokerj.wire.RecordBatch;

/** A connection that is lost in every way, against a service that can be made to have each fault. */
@Timeout(60)
class ServiceConnectionTest extends ConnectionTestCase {
    @Test
    void requestsAreNumberedAndCompletedInOrder() throws Exception {
        connect(0, 10_000);
        List<Integer> completed = Collections.synchronizedList(new ArrayList<>());
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 5_000; n++) {
            int number = n;
            all.add(send().thenRun(() -> completed.add(number)));
        }
        for (Future<?> each : all) {
            assertDone(each);
        }
        assertEquals(LongStream.range(0, 5_000).mapToObj(n -> (int) n).toList(), completed);
        assertEquals(upTo(5_000), service.decided());
    }

    @Test
    void whatTheReadingThreadIsMadeToAskIsSentToo() throws Exception {
        connect(0, 60_000);
        goAway();
        CompletableFuture<String> teller = new CompletableFuture<>();
        Future<?> both = send().thenCompose(done -> {
            teller.complete(Thread.currentThread().getName());
            return send();
        });
        startAgain();
        assertDone(both);
        assertEquals("sparkstore-connection", teller.get());
        assertEquals(upTo(2), service.decided());
    }

    @ParameterizedTest
    @EnumSource(names = {"LOSE_BEFORE", "LOSE_AFTER", "SEND_GARBAGE", "SEND_HALF"})
    void whatALostConnectionLeavesInDoubtIsDecidedOnce(Fate loss) throws Exception {
        AtomicBoolean isLost = new AtomicBoolean();
        service.fate = number ->
                number == 100 && !isLost.getAndSet(true) ? loss : Fate.ANSWER;
        connect(0, 10_000);
        List<Future<?>> all = new ArrayList<>();
        for (int n = 0; n < 300; n++) {
            all.add(send());
        }
        for (Future<?> each : all) {
            assertDone(each);
        }
        assertTrue(isLost.get());
        assertEquals(upTo(300), service.decided());
    }

    @Test
    void theSameIncarnationComesBack() throws Exception {
        connect(0, 10_000);
        List<String> first = service.hellos.take();
        service.restart();
        assertDone(send());
        assertEquals(first, service.hellos.take());
        assertEquals(List.of("brokerj", "host"), List.of(first.get(0), first.get(2)));
    }

    @Test
    void whoConnectsAgainSaysHowFarItHasSeenTheRoot() throws Exception {
        connect(0, 10_000);
        String run = service.instance;
        assertEquals("", service.seen.take());
        assertDone(send());
        assertDone(send());
        service.restart();
        assertDone(send());
        assertEquals("root 1 " + run + " 102", service.seen.take());
    }

    @Test
    void anotherVersionIsRefusedWithBothNamed() {
        service.version = 7;
        StoreException failure = assertThrows(StoreException.class,
                () -> new StoreClient(settings(10_000, 0, 1_000, null)));
        assertTrue(failure.getMessage().contains("version 4")
                && failure.getMessage().contains("version 7"), failure.getMessage());
    }

    @Test
    void aWrongTokenIsToldInTheServicesWords() throws Exception {
        Path token = Files.writeString(folder.resolve("token"), "0123456789abcdef\n");
        service.goodbye = new String[] {"InvalidRequest", "wrong token"};
        StoreException failure = assertThrows(StoreException.class,
                () -> new StoreClient(settings(10_000, 0, 1_000, token.toString())));
        assertTrue(failure.getMessage().contains("wrong token"), failure.getMessage());
        assertEquals("0123456789abcdef", service.hellos.take().get(3));
    }

    @Test
    void aSecondBrokerWaitsUntilTheFirstIsGone() throws Exception {
        service.goodbye = new String[] {"InvalidRequest", "member 'brokerj' is connected already"};
        Future<?> opened = CompletableFuture.runAsync(() -> connect(0, 1_000));
        service.hellos.take();
        service.goodbye = null;
        assertDone(opened);
    }

    @Test
    void aRefusalCostsOneConnectionAndOnlyTheRequestItNames() throws Exception {
        service.fate = number -> number == 2 ? Fate.REFUSE : Fate.ANSWER;
        connect(0, 10_000);
        Future<?> first = send();
        Future<?> second = send();
        assertDone(first);
        assertInstanceOf(Refused.class, failureOf(second));
        assertInstanceOf(ConnectionScopedRuntimeException.class, failureOf(second));
        assertDone(send());
    }

    @Test
    void aNewerWriterEndsTheBroker() {
        service.fate = number -> Fate.SEND_FATAL;
        connect(0, 10_000);
        assertInstanceOf(StoreException.class, failureOf(send()));
        assertThrows(StoreException.class, this::send);
    }

    @Test
    void piecesAreSentAgainToAnotherRunOfTheServiceButNotToTheSame() throws Exception {
        service.fate = number -> number == 4 ? Fate.KEEP_SILENT : Fate.ANSWER;
        connect(0, 60_000);
        StoreClient.Pieces pieces = client.newPieces();
        assertDone(pieces.send(7, null, new byte[3 * StoreClient.PIECE_BYTES]));
        Future<?> whole = client.submit(new RecordBatch().dequeued("q", 7), pieces, true);
        List<Long> received = take(4);
        service.fate = number -> Fate.ANSWER;
        service.restart();
        assertDone(whole);
        assertEquals(List.of(1L, 2L, 3L, 4L), received);
        assertEquals(List.of(1L, 2L, 3L, 4L), take(4));
        assertEquals(upTo(4), service.decided());
    }

    private List<Long> take(int count) throws InterruptedException {
        List<Long> taken = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            taken.add(service.received.take());
        }
        return taken;
    }

    @Test
    void aTransactionTooLargeForAFrameGoesInParts() throws Exception {
        connect(0, 10_000);
        RecordBatch batch = new RecordBatch();
        byte[] header = new Packer(1).nil().toBytes();
        for (int n = 1; n <= 100; n++) {
            batch.enqueued("q", n, header, new byte[200_000]);
        }
        assertDone(client.submit(batch, null, true));
        assertTrue(service.decided().size() > 5, "OPEN, several ADDs, END");
        assertDone(send());
    }

    @Test
    void readsAreAskedAgainAfterALoss() throws Exception {
        connect(0, 10_000);
        assertEquals(77L, client.sizeOnDisk().get(20, TimeUnit.SECONDS));
        service.restart();
        assertEquals(77L, client.reserveIds(10).get(20, TimeUnit.SECONDS));
    }
}
