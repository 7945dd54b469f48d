package sparkstore.brokerj.service;

import java.util.Set;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.qpid.server.store.StoreException;
import org.apache.qpid.server.util.ConnectionScopedRuntimeException;

/**
 * What an error of the service means to the broker.
 *
 * <p>Contract, point 12: {@code StoreException} is server-scoped, raised on an I/O thread it ends
 * the broker's process. So it is used only where going on would be wrong: another writer owns the
 * root (Fenced), or what is stored cannot be read (CorruptData). All else costs one connection: a
 * call that was refused, a service that is away longer than the broker is set to wait.
 */
public final class Failures {
    private static final Set<String> FATAL = Set.of("Fenced", "CorruptData");

    private static final long TURN_OVER_NANOS = 10_000_000_000L;

    private static final Set<String> PASSING = Set.of("Unavailable", "Full");

    private Failures() {
    }

    /** Is there no use in coming back? */
    static boolean isFatal(String error) {
        return FATAL.contains(error);
    }

    /**
     * May it be that the other machine of a pair took the root over? Then this one says so until
     * its service has ended. One that serves, and has less than this broker has seen, goes on to.
     */
    static boolean isTurnOver(String error, long lostNanos) {
        return "Fenced".equals(error) && System.nanoTime() - lostNanos < TURN_OVER_NANOS;
    }

    /** @param error class name of sparkstore.errors; {@code message} says what to do */
    public static RuntimeException of(String error, String message) {
        String text = "the store says " + error + ": " + message;
        if (isFatal(error)) {
            return new StoreException(text);
        }
        return PASSING.contains(error) ? away(text) : new Refused(text);
    }

    static RuntimeException away(String message) {
        return new ConnectionScopedRuntimeException(message);
    }

    /** Wait for a result and raise its failure as it is. */
    public static <T> T await(Future<T> future) {
        try {
            return future.get();
        } catch (ExecutionException | CompletionException failure) {
            throw unwrapped(failure.getCause());
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw away("interrupted while waiting for the store");
        }
    }

    private static RuntimeException unwrapped(Throwable cause) {
        // A new exception with this thread's stack; the other thread's is its cause.
        if (cause instanceof StoreException) {
            return new StoreException(cause.getMessage(), cause);
        }
        if (cause instanceof Refused) {
            return new Refused(cause.getMessage(), cause);
        }
        if (cause instanceof Withdrawn) {
            return new Withdrawn(cause.getMessage(), cause);
        }
        return new ConnectionScopedRuntimeException(cause.getMessage(), cause);
    }
}
