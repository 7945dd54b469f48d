package sparkstore.brokerj.service;

import java.util.List;
import java.util.function.Consumer;

/**
 * Looks at the clock for the connection: a service that stays silent, callers that waited enough.
 *
 * <p>A connected service that has work and says nothing for the answer timeout is dropped, which
 * means: reconnect and replay, harmless if it was only slow. While there is no connection, callers
 * that waited longer than the retry timeout are told so. A request that was never sent is withdrawn
 * then ({@link Withdrawn}: nothing of it will happen). For one that was sent that means "outcome
 * unknown", as for a client whose connection broke while it waited: the service may have decided it
 * before it went away. If it had not, the request is withdrawn as soon as the service is back.
 */
final class Watch {
    private static final long TICK_MS = 100;

    private final ServiceSettings settings;
    private final Outbox outbox;
    private final Consumer<String> drop;
    private final Thread thread = ServiceConnection.daemon(this::run, "sparkstore-watch");
    private FrameChannel connecting;
    private boolean isConnected;
    private long changedNanos = System.nanoTime();
    private volatile long heardNanos;
    private volatile boolean isStopped;

    Watch(ServiceSettings settings, Outbox outbox, Consumer<String> drop) {
        this.settings = settings;
        this.outbox = outbox;
        this.drop = drop;
    }

    void start() {
        thread.start();
    }

    synchronized void stop() {
        isStopped = true;
        notifyAll();
    }

    /** HELLO is about to be sent over {@code channel}. */
    synchronized void connecting(FrameChannel channel) {
        connecting = channel;
        heardNanos = System.nanoTime();
    }

    synchronized void connected() {
        connecting = null;
        isConnected = true;
        heard();
    }

    synchronized void disconnected() {
        connecting = null;
        if (isConnected) {
            changedNanos = System.nanoTime();
        }
        isConnected = false;
    }

    void heard() {
        heardNanos = System.nanoTime();
    }

    /** Wait until nothing is unanswered, or for the timeout. */
    synchronized void awaitIdle(long timeoutMs) {
        long until = System.nanoTime() + timeoutMs * 1_000_000;
        while (!outbox.isIdle() && isConnected && System.nanoTime() - until < 0) {
            tick();
        }
    }

    private void run() {
        while (!isStopped) {
            synchronized (this) {
                tick();
            }
            if (!isStopped) {
                look(System.nanoTime());
            }
        }
    }

    private synchronized void tick() {
        try {
            wait(TICK_MS);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private void look(long now) {
        FrameChannel greeted;
        boolean isUp;
        long since;
        synchronized (this) {
            greeted = connecting;
            isUp = isConnected;
            since = changedNanos;
        }
        long silentNanos = settings.answerTimeout().toNanos();
        Long oldest = outbox.oldestNanos();
        if (greeted != null && now - heardNanos > silentNanos) {
            close(greeted);
        } else if (isUp && oldest != null && now - oldest > silentNanos
                && now - heardNanos > silentNanos) {
            drop.accept("no answer for " + settings.answerTimeout().toSeconds() + " s");
        }
        long retryNanos = settings.retryTimeout().toNanos();
        if (!isUp && retryNanos > 0 && now - since > retryNanos) {
            giveUp(outbox.waitingSince(now - retryNanos));
        }
    }

    private void giveUp(List<Outgoing> waiting) {
        String away = "the store's service is away for longer than "
                + settings.retryTimeout().toSeconds() + " s: ";
        for (Outgoing frame : waiting) {
            boolean isWithdrawn = frame instanceof Request request && request.isWithdrawn;
            fail(List.of(frame), isWithdrawn ? new Withdrawn(away + "nothing was done")
                    : Failures.away(away + "outcome unknown"));
        }
    }

    private static void close(FrameChannel channel) {
        try {
            channel.close();
        } catch (java.io.IOException ignored) {
            // It is gone either way.
        }
    }

    /** Tell everybody who waits for these. */
    void fail(List<Outgoing> waiting, RuntimeException failure) {
        for (Outgoing frame : waiting) {
            if (frame instanceof Request request) {
                request.decided.completeExceptionally(failure);
            } else if (frame instanceof Read read) {
                read.answer.fail(failure);
            }
        }
    }
}
