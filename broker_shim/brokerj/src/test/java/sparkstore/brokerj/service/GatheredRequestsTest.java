package sparkstore.brokerj.service;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import sparkstore.brokerj.service.FakeService.Fate;
import sparkstore.brokerj.service.FakeService.Sent;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.Packer;
import sparkstore.brokerj.wire.RecordBatch;

/**
 * Requests that wait to be sent go together in one frame. They pile up here because nobody listens
 * when they are submitted.
 */
@Timeout(60)
class GatheredRequestsTest extends ConnectionTestCase {
    private static final byte[] HEADER = new Packer(1).nil().toBytes();

    @BeforeEach
    void connectAndLoseTheService() throws Exception {
        connect(0, 60_000);
        goAway();
    }

    private List<CompletableFuture<Void>> sendMany(int count) {
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            all.add(send());
        }
        return all;
    }

    private CompletableFuture<Void> put(String queue, long messageId, int bytes) {
        return client.submit(
                new RecordBatch().enqueued(queue, messageId, HEADER, new byte[bytes]), null, false);
    }

    private static void assertAllDone(List<CompletableFuture<Void>> all) throws Exception {
        for (CompletableFuture<Void> each : all) {
            assertDone(each);
        }
    }

    /** Type, first number and count of the next frames. */
    private List<List<Long>> frames(int count) throws InterruptedException {
        List<List<Long>> found = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            Sent sent = service.frames.take();
            found.add(List.of((long) sent.type(), sent.first(), (long) sent.count()));
        }
        return found;
    }

    private static List<Long> each(long first, long count) {
        return List.of((long) Frames.BATCH, first, count);
    }

    private static List<Long> alone(long number) {
        return List.of((long) Frames.DO, number, 1L);
    }

    /** Wait until the fate of a request is settled. */
    private void awaitReceived(long number) throws InterruptedException {
        while (service.received.take() < number) {
            // An earlier one.
        }
    }

    @Test
    void whatIsUnsentGoesInOneFrameAndIsAnsweredInOrder() throws Exception {
        List<Integer> completed = new ArrayList<>();
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (int n = 0; n < 10; n++) {
            int number = n;
            all.add(send().thenRun(() -> completed.add(number)));
        }
        startAgain();
        assertAllDone(all);
        assertEquals(List.of(each(1, 10)), frames(1));
        assertEquals(List.of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), completed);
    }

    @Test
    void oneThatIsAloneIsSentAsItWas() throws Exception {
        CompletableFuture<Void> only = send();
        startAgain();
        assertDone(only);
        assertEquals(List.of(alone(1)), frames(1));
        assertArrayEquals(new RecordBatch().dequeued("q", 1).toArray(), service.said.get(1L));
    }

    @Test
    void anotherQueueAnotherKindAndATransactionBeginAnotherFrame() throws Exception {
        List<CompletableFuture<Void>> all = new ArrayList<>(sendMany(2));
        for (String queue : List.of("q", "q", "other", "other", "q")) {
            all.add(put(queue, 7, 100));
        }
        RecordBatch transaction = new RecordBatch().dequeued("q", 1).dequeued("q", 2);
        all.add(client.submit(transaction, null, false));
        all.addAll(sendMany(3));
        startAgain();
        assertAllDone(all);
        assertEquals(List.of(each(1, 2), each(3, 2), each(5, 2), alone(7), alone(8), each(9, 3)),
                frames(6));
        assertEquals(upTo(11), service.decided());
    }

    @Test
    void aRequestThatBelongsToPiecesIsNotGathered() throws Exception {
        StoreClient.Pieces pieces = client.newPieces();
        List<CompletableFuture<Void>> all = new ArrayList<>(sendMany(2));
        all.add(pieces.send(7, null, new byte[10]));
        all.add(client.submit(new RecordBatch().dequeued("q", 7), pieces, false));
        all.addAll(sendMany(2));
        startAgain();
        assertAllDone(all);
        List<Long> piece = List.of((long) Frames.PIECE, 3L, 1L);
        assertEquals(List.of(each(1, 2), piece, alone(4), each(5, 2)), frames(4));
    }

    @ParameterizedTest
    @CsvSource({"LOSE_BEFORE, 5, 6", "LOSE_AFTER, 6, 5", "SEND_HALF, 6, 5"})
    void aConnectionLostInTheMiddleLeavesTheRestToTheNextOne(Fate loss, long next, long left)
            throws Exception {
        List<CompletableFuture<Void>> all = sendMany(10);
        startAgain(number -> number < 5 ? Fate.ANSWER : number > 5 ? Fate.KEEP_SILENT : loss);
        awaitReceived(5);
        assertEquals(List.of(each(1, 10)), frames(1));
        service.fate = number -> Fate.ANSWER;
        service.restart();
        assertAllDone(all);
        assertEquals(upTo(10), service.decided());
        assertEquals(List.of(each(next, left)), frames(1));
    }

    @Test
    void oneThatIsRefusedInTheMiddleFailsAlone() throws Exception {
        List<CompletableFuture<Void>> all = sendMany(10);
        startAgain(number -> number == 5 ? Fate.REFUSE : Fate.ANSWER);
        assertInstanceOf(Refused.class, failureOf(all.remove(4)));
        assertAllDone(all);
        assertEquals(List.of(each(1, 10)), frames(1));
        assertEquals(upTo(10), service.decided());
    }

    @Test
    void oneThatIsWithdrawnInTheMiddleIsCutOut() throws Exception {
        List<CompletableFuture<Void>> all = sendMany(7);
        startAgain(number -> Fate.KEEP_SILENT);
        awaitReceived(7);
        assertEquals(List.of(each(1, 7)), frames(1));
        // As the watch tells whoever waited too long: nobody waits for it any more.
        all.remove(3).completeExceptionally(Failures.away("outcome unknown"));
        service.fate = number -> Fate.ANSWER;
        service.restart();
        assertAllDone(all);
        assertEquals(List.of(each(1, 3), alone(4), each(5, 3)), frames(3));
        assertArrayEquals(new Packer(1).array(0).toBytes(), service.said.get(4L));
        assertEquals(upTo(7), service.decided());
    }

    @Test
    void aFrameIsAtMostAsLongAsTheServiceTakesIt() throws Exception {
        List<CompletableFuture<Void>> all = new ArrayList<>();
        for (int n = 0; n < 40; n++) {
            all.add(put("q", n, 1_000));
        }
        int limit = 5_000;
        service = new FakeService(service.path, made -> made.maxFrameBytes = limit);
        assertAllDone(all);
        for (Sent sent : service.frames) {
            assertEquals(4, sent.count());
            assertTrue(sent.bytes() <= limit && sent.bytes() > limit - 1_000, sent.toString());
        }
        assertEquals(upTo(40), service.decided());
    }

    @Test
    void aFrameNamesAThousandMessagesAtMost() throws Exception {
        List<CompletableFuture<Void>> all = sendMany(2_500);
        startAgain();
        assertAllDone(all);
        assertEquals(List.of(each(1, 1_000), each(1_001, 1_000), each(2_001, 500)), frames(3));
    }
}
