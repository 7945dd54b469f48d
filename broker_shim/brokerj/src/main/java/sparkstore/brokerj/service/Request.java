package sparkstore.brokerj.service;

import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;

/** A request: decided once by the service, whatever is lost on the way. */
final class Request extends Outgoing {
    /** Completed by the reading thread, in the order of the numbers. */
    final CompletableFuture<Void> decided = new CompletableFuture<>();
    final Group group;
    boolean isAnswered;

    /** @param group what it belongs to, null if it stands alone */
    Request(int type, int elementCount, int restBytes, Supplier<byte[]> rest, Group group) {
        super(type, elementCount, restBytes, rest);
        this.group = group;
    }
}
