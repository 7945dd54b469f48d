package sparkstore.brokerj.wire;

/** The service sent what the store protocol does not allow: the connection is closed and made again. */
public final class ProtocolException extends RuntimeException {
    public ProtocolException(String message) {
        super(message);
    }
}
