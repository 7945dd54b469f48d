package sparkstore.brokerj.service;

import java.io.IOException;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.qpid.server.store.StoreException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.ProtocolException;

/**
 * The connection to the service that every store of one virtual host shares.
 *
 * <p>Three threads: one connects, reads, and connects again with a growing delay; one writes what
 * comes in bursts, so that the requests of one burst go out together; one watches the clock. A caller
 * that waits for its request writes it itself, and so does one that finds few unanswered, as it is
 * about to wait: waking a thread would cost it as much as writing, and that thread's way to a
 * processor besides. Whoever holds {@code writing} sends everything that is unsent, in as few
 * frames as that fits in, and looks again after letting go, so a request added while it wrote is never
 * left behind; the reading thread holds it while it replays, so no frame of the old connection gets
 * between those.
 */
public final class ServiceConnection implements AutoCloseable {
    private static final Logger LOGGER = LoggerFactory.getLogger(ServiceConnection.class);
    private static final long FIRST_DELAY_MS = 10;
    private static final long LONGEST_DELAY_MS = 1_000;
    /** A broker that was just killed may still be connected in the service's eyes. */
    private static final long REFUSED_AT_START_MS = 3_000;
    private static final long CLOSE_TIMEOUT_MS = 5_000;

    private final ServiceSettings settings;
    private final String incarnation = UUID.randomUUID().toString();
    private final Outbox outbox = new Outbox();
    private final ReentrantLock writing = new ReentrantLock();
    private final CompletableFuture<Void> firstWelcome = new CompletableFuture<>();
    private final Object closing = new Object();
    private final Thread reader = daemon(this::run, "sparkstore-connection");
    private final WriterThread writer = new WriterThread(this::flush);
    private final Watch watch;
    private final Reception reception;
    private volatile FrameChannel channel;
    private volatile boolean isClosed;
    private volatile String lastTrouble = "not tried yet";
    private volatile Welcome welcome;
    private long refusedSinceNanos;
    private long lostNanos = System.nanoTime();

    public ServiceConnection(ServiceSettings settings) {
        this.settings = settings;
        this.watch = new Watch(settings, outbox, this::drop);
        this.reception = new Reception(outbox, watch::heard);
    }

    /**
     * Connect, waiting for the service as long as the settings say.
     *
     * @throws StoreException not reachable in time, or refused: wrong token, other version, a root
     *     of another virtual host, a second broker on this root. The message says which
     */
    public void open() {
        reader.start();
        writer.start();
        watch.start();
        try {
            firstWelcome.get(settings.connectTimeout().toMillis(), TimeUnit.MILLISECONDS);
        } catch (TimeoutException late) {
            close();
            throw new StoreException("no store service at " + settings.address().text() + " within "
                    + settings.connectTimeout().toSeconds() + " s (" + lastTrouble
                    + "): is 'sparkstore serve' running?");
        } catch (ExecutionException refused) {
            close();
            throw new StoreException(refused.getCause().getMessage(), refused.getCause());
        } catch (InterruptedException interrupted) {
            close();
            Thread.currentThread().interrupt();
            throw new StoreException("interrupted while connecting to the store's service");
        }
    }

    /** Longest frame that the service takes. */
    public int maxFrameBytes() {
        return welcome.maxFrameBytes();
    }

    /**
     * Hand over a request. It waits for room in the window, and returns before the request is
     * decided.
     *
     * @param isUrgent the caller is about to wait for it
     * @return completed when it is decided and durable; exceptionally when it was refused
     */
    CompletableFuture<Void> submit(Request request, boolean isUrgent) {
        boolean isQuiet = outbox.add(request, settings.retryTimeout().toNanos());
        // The reading thread, which tells of answers, must not wait for the socket.
        if ((isUrgent || isQuiet) && Thread.currentThread() != reader) {
            flush();
        } else {
            writer.wake();
        }
        return request.decided;
    }

    void abandon(Group group) {
        outbox.abandon(group);
    }

    /** Ask; the answers come on the reading thread. */
    void ask(Read read) {
        outbox.add(read);
        flush();
    }

    private void flush() {
        while (channel != null && outbox.hasUnsent() && writing.tryLock()) {
            try {
                send();
            } finally {
                writing.unlock();
            }
        }
    }

    /** Send what is unsent. A failure closes the channel: the reading thread notices and replays. */
    private void send() {
        FrameChannel to = channel;
        if (to == null) {
            return;
        }
        try {
            for (Frame next = outbox.nextUnsent(); next != null; next = outbox.nextUnsent()) {
                next.writeTo(to);
            }
            to.flush();
        } catch (IOException lost) {
            drop("could not send: " + lost.getMessage());
        }
    }

    private void run() {
        long delayMs = FIRST_DELAY_MS;
        for (int turn = 0; !isClosed;) {
            boolean wasConnected = false;
            try (FrameChannel to = new FrameChannel(settings.address().connect(turn))) {
                hello(to);
                wasConnected = true;
                delayMs = FIRST_DELAY_MS;
                reception.listen(to);
            } catch (IOException | ProtocolException lost) {
                trouble(lost.getMessage() == null ? "connection closed, perhaps after no answer"
                        : lost.getMessage(), wasConnected);
            } catch (GoodbyeException goodbye) {
                goodbye(goodbye, wasConnected);
            } finally {
                channel = null;
                watch.disconnected();
            }
            turn += wasConnected ? 0 : 1;
            pause(delayMs);
            delayMs = Math.min(2 * delayMs, LONGEST_DELAY_MS);
        }
    }

    private void hello(FrameChannel to) throws IOException, GoodbyeException {
        watch.connecting(to);
        to.write(Frames.hello(
                ServiceSettings.MEMBER, incarnation, settings.host(), settings.token(),
                settings.formerHost(), welcome == null ? null : welcome.seen(reception.position())));
        to.flush();
        Welcome said = Welcome.of(to.read());
        to.maxFrameBytes(said.maxFrameBytes());
        List<Outbox.Settled> settled;
        writing.lock();
        try {
            boolean isSameRun = welcome != null && said.instance().equals(welcome.instance());
            settled = outbox.welcomed(said, isSameRun);
            welcome = said;
            channel = to;
        } finally {
            writing.unlock();
        }
        watch.connected();
        refusedSinceNanos = 0;
        LOGGER.info("connected to the store service at {}, root {}", settings.address().text(),
                said.rootId());
        settled.forEach(Outbox.Settled::tell);
        firstWelcome.complete(null);
        writer.wake();
    }

    private void goodbye(GoodbyeException goodbye, boolean wasConnected) {
        String message = goodbye.error() + ": " + goodbye.getMessage();
        lostNanos = wasConnected ? System.nanoTime() : lostNanos;
        boolean isTurnOver = settings.address().isPair()
                && Failures.isTurnOver(goodbye.error(), lostNanos);
        if (Failures.isFatal(goodbye.error()) && !isTurnOver) {
            RuntimeException failure = Failures.of(goodbye.error(), goodbye.getMessage());
            LOGGER.error("the store service sent this broker away for good: {}", message);
            isClosed = true;
            end(failure);
            return;
        }
        trouble(message, wasConnected);
        long now = System.nanoTime();
        refusedSinceNanos = refusedSinceNanos == 0 ? now : refusedSinceNanos;
        boolean isSettled = now - refusedSinceNanos > REFUSED_AT_START_MS * 1_000_000;
        if (goodbye.isRefusal() && isSettled) {
            firstWelcome.completeExceptionally(Failures.away(
                    "the store service at " + settings.address().text() + " refused: " + message));
        }
    }

    private void trouble(String message, boolean wasConnected) {
        if (!isClosed && (wasConnected || !message.equals(lastTrouble))) {
            LOGGER.warn("{} the store service at {}: {}; trying again",
                    wasConnected ? "lost" : "cannot reach", settings.address().text(), message);
        }
        lastTrouble = message;
    }

    /** Close the present channel, so that the reading thread makes a new one. */
    private void drop(String reason) {
        FrameChannel present = channel;
        if (present != null && !isClosed) {
            LOGGER.debug("dropping the connection to the store service: {}", reason);
        }
        closeQuietly(present);
    }

    private void end(RuntimeException failure) {
        firstWelcome.completeExceptionally(failure);
        watch.fail(outbox.fail(failure), failure);
    }

    private void pause(long delayMs) {
        synchronized (closing) {
            if (!isClosed) {
                try {
                    closing.wait(delayMs);
                } catch (InterruptedException interrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }

    /**
     * Let go. What is unanswered gets a few seconds; after that its callers are told that the
     * outcome is unknown. May be called again.
     */
    @Override
    public void close() {
        if (channel != null && !outbox.isIdle()) {
            watch.awaitIdle(CLOSE_TIMEOUT_MS);
        }
        synchronized (closing) {
            isClosed = true;
            closing.notifyAll();
        }
        watch.stop();
        writer.close();
        closeQuietly(channel);
        join(reader);
        end(Failures.away("the store is closed"));
    }

    private static void join(Thread thread) {
        try {
            if (thread != Thread.currentThread()) {
                thread.join(CLOSE_TIMEOUT_MS);
            }
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private static void closeQuietly(FrameChannel channel) {
        try {
            if (channel != null) {
                channel.close();
            }
        } catch (IOException ignored) {
            // It is gone either way.
        }
    }

    static Thread daemon(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }
}
