package sparkstore.brokerj.service;

import java.io.ByteArrayOutputStream;
import java.util.concurrent.CompletableFuture;
import sparkstore.brokerj.wire.ProtocolException;
import sparkstore.brokerj.wire.Unpacker;

/**
 * A message that was read back.
 *
 * @param header type byte and the metadata in the protocol's own encoding
 * @param body whole content
 */
public record Loaded(byte[] header, byte[] body) {
    private static final int MESSAGE_FIELDS = 20;

    /** Puts the pieces of one LOAD together. */
    static final class Collector implements Read.Answer {
        private final CompletableFuture<Loaded> whole = new CompletableFuture<>();
        private final ByteArrayOutputStream body = new ByteArrayOutputStream();
        private byte[] header;

        CompletableFuture<Loaded> loaded() {
            return whole;
        }

        @Override
        public void take(Unpacker piece, boolean isLast) {
            if (!piece.nil()) {
                header = headerOf(piece);
            }
            body.writeBytes(piece.binary());
            if (isLast) {
                whole.complete(new Loaded(header, body.toByteArray()));
            }
        }

        private static byte[] headerOf(Unpacker message) {
            if (message.array() != MESSAGE_FIELDS) {
                throw new ProtocolException("a message header that has not " + MESSAGE_FIELDS
                        + " fields");
            }
            message.text();
            byte[] encoded = message.binary();
            for (int left = MESSAGE_FIELDS - 2; left > 0; left--) {
                message.skip();
            }
            return encoded;
        }

        @Override
        public void fail(RuntimeException failure) {
            whole.completeExceptionally(failure);
        }

        @Override
        public void restart() {
            body.reset();
        }
    }
}
