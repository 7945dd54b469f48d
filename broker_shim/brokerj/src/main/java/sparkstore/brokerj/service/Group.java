package sparkstore.brokerj.service;

import java.util.ArrayList;
import java.util.List;

/**
 * Requests that only mean something together: the pieces of large messages, or the parts of a
 * transaction too large for one frame, and the request that makes them true.
 *
 * <p>The service may forget the first ones when it dies before the last one is decided, though it
 * answered them. So the outbox keeps all of them until the last one is answered.
 */
final class Group {
    final List<Request> answered = new ArrayList<>();
    /** The last request, once it was made; null before. */
    Request last;
    boolean isOver;
}
