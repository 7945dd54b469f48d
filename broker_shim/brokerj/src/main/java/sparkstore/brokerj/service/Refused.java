package sparkstore.brokerj.service;

import org.apache.qpid.server.util.ConnectionScopedRuntimeException;

/** The service refused a call: nothing of it was done, and asking again would not help. */
public final class Refused extends ConnectionScopedRuntimeException {
    Refused(String message) {
        super(message);
    }

    Refused(String message, Throwable cause) {
        super(message, cause);
    }
}
