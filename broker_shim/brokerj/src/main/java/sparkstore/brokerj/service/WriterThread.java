package sparkstore.brokerj.service;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;

/** Flushes when it is woken: what was submitted while it woke up goes out in one write. */
final class WriterThread {
    private final Runnable flush;
    private final AtomicBoolean isWanted = new AtomicBoolean();
    private final Thread thread = ServiceConnection.daemon(this::run, "sparkstore-writer");
    private volatile boolean isClosed;

    WriterThread(Runnable flush) {
        this.flush = flush;
    }

    void start() {
        thread.start();
    }

    void wake() {
        if (!isWanted.getAndSet(true)) {
            LockSupport.unpark(thread);
        }
    }

    void close() {
        isClosed = true;
        LockSupport.unpark(thread);
    }

    private void run() {
        while (!isClosed) {
            // Set to false before the flush, so that a wake during it makes another turn.
            if (isWanted.getAndSet(false)) {
                flush.run();
            } else {
                LockSupport.park(this);
            }
        }
    }
}
