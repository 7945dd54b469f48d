package sparkstore.brokerj.store;

import java.util.concurrent.TimeUnit;
import org.apache.qpid.server.model.ConfiguredObject;
import org.apache.qpid.server.store.Event;
import org.apache.qpid.server.store.EventManager;
import org.apache.qpid.server.store.SizeMonitoringSettings;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import sparkstore.brokerj.service.StoreClient;

/**
 * Contract, point 10: when the root on disk passes the overfull size (above 0) the broker is told
 * once, and once when it is below the underfull size again. Best effort: it looks every second, by
 * a thread that is only there while a limit is set. Asking is better here than counting what goes
 * by, because a root shrinks when a Spark job compacts it, not when a message is taken. Producers
 * that went on once the messages are taken would write to a disk on which nothing is free yet.
 */
final class Quota {
    private static final Logger LOGGER = LoggerFactory.getLogger(Quota.class);
    private static final long PERIOD_MS = 1_000;

    /** Bytes; {@code overfull} 0 means no limit. */
    record Limits(long underfull, long overfull) {
    }

    private final EventManager events = new EventManager();
    private Thread thread;

    EventManager events() {
        return events;
    }

    /** The limits of the virtual host, or of its node where the host has none. */
    static Limits of(ConfiguredObject<?> host, SizeMonitoringSettings node) {
        SizeMonitoringSettings settings = node;
        if (host instanceof SizeMonitoringSettings own && size(own.getStoreOverfullSize()) > 0) {
            settings = own;
        }
        long overfull = size(settings.getStoreOverfullSize());
        long underfull = size(settings.getStoreUnderfullSize());
        return new Limits(underfull <= 0 || underfull > overfull ? overfull : underfull, overfull);
    }

    private static long size(Long bytes) {
        return bytes == null ? 0 : bytes;
    }

    synchronized void start(StoreClient client, Limits limits) {
        if (limits.overfull() > 0) {
            thread = new Thread(() -> watch(client, limits), "sparkstore-quota");
            thread.setDaemon(true);
            thread.start();
        }
    }

    synchronized void stop() {
        if (thread != null) {
            thread.interrupt();
            thread = null;
        }
    }

    private void watch(StoreClient client, Limits limits) {
        boolean isOverfull = false;
        try {
            while (true) {
                long size = sizeOrMinusOne(client);
                if (!isOverfull && size > limits.overfull()) {
                    isOverfull = true;
                    events.notifyEvent(Event.PERSISTENT_MESSAGE_SIZE_OVERFULL);
                } else if (isOverfull && size >= 0 && size < limits.underfull()) {
                    isOverfull = false;
                    events.notifyEvent(Event.PERSISTENT_MESSAGE_SIZE_UNDERFULL);
                }
                TimeUnit.MILLISECONDS.sleep(PERIOD_MS);
            }
        } catch (InterruptedException stopped) {
            LOGGER.debug("the watch of the store's size ends");
        }
    }

    private static long sizeOrMinusOne(StoreClient client) throws InterruptedException {
        try {
            return client.sizeOnDisk().get();
        } catch (java.util.concurrent.ExecutionException | RuntimeException away) {
            return -1;
        }
    }
}
