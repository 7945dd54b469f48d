package sparkstore.brokerj.service;

import org.apache.qpid.server.util.ConnectionScopedRuntimeException;

/** The service was away for too long, and the request was never sent: nothing of it will happen. */
public final class Withdrawn extends ConnectionScopedRuntimeException {
    Withdrawn(String message) {
        super(message);
    }

    Withdrawn(String message, Throwable cause) {
        super(message, cause);
    }
}
