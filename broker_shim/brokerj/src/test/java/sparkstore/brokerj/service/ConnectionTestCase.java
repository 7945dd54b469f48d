package sparkstore.brokerj.service;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.LongFunction;
import java.util.stream.LongStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;
import sparkstore.brokerj.wire.RecordBatch;

/** A client and a service that can be made to have each fault. */
abstract class ConnectionTestCase {
    @TempDir Path folder;
    FakeService service;
    StoreClient client;

    @BeforeEach
    void start() throws Exception {
        service = new FakeService(folder.resolve("s"));
    }

    @AfterEach
    void stop() throws Exception {
        if (client != null) {
            client.close();
        }
        service.close();
    }

    ServiceSettings settings(int connectMs, int retryMs, int answerMs, String tokenFile) {
        return settings("unix:" + service.path, connectMs, retryMs, answerMs, tokenFile);
    }

    static ServiceSettings settings(
            String address, int connectMs, int retryMs, int answerMs, String tokenFile) {
        return new ServiceSettings(new ServiceAddress(address), tokenFile, "host",
                null, Duration.ofMillis(connectMs), Duration.ofMillis(retryMs),
                Duration.ofMillis(answerMs));
    }

    void connect(int retryMs, int answerMs) {
        client = new StoreClient(settings(10_000, retryMs, answerMs, null));
    }

    /** Nobody listens any more, until {@link #startAgain}. */
    void goAway() throws Exception {
        service.close();
        Files.deleteIfExists(service.path);
    }

    /** A service that has decided nothing, and has each fate from its first connection on. */
    void startAgain(LongFunction<FakeService.Fate> fate) throws Exception {
        service = new FakeService(service.path, made -> made.fate = fate);
    }

    void startAgain() throws Exception {
        startAgain(number -> FakeService.Fate.ANSWER);
    }

    CompletableFuture<Void> send() {
        return client.submit(new RecordBatch().dequeued("q", 1), null, false);
    }

    static void assertDone(Future<?> future) throws Exception {
        future.get(20, TimeUnit.SECONDS);
    }

    static Throwable failureOf(Future<?> future) {
        return assertThrows(ExecutionException.class, () -> future.get(20, TimeUnit.SECONDS))
                .getCause();
    }

    static List<Long> upTo(long last) {
        return LongStream.rangeClosed(1, last).boxed().toList();
    }
}
