package sparkstore.brokerj.service;

import sparkstore.brokerj.wire.Unpacker;

/** The service sent us away, and said why. */
final class GoodbyeException extends Exception {
    private final String error;

    GoodbyeException(String error, String message) {
        super(message);
        this.error = error;
    }

    static GoodbyeException of(Unpacker body) {
        body.array();
        return new GoodbyeException(body.text(), body.text());
    }

    String error() {
        return error;
    }

    /** Would the same HELLO be refused again until somebody changes something? */
    boolean isRefusal() {
        return "InvalidRequest".equals(error);
    }
}
