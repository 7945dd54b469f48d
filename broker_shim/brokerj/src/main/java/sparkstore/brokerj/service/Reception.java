package sparkstore.brokerj.service;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.ProtocolException;
import sparkstore.brokerj.wire.Unpacker;

/**
 * What the service says on a connection, told to who waits for it. Used by the reading thread
 * alone, so completions are in the order in which the service gave them.
 */
final class Reception {
    private final Outbox outbox;
    private final Runnable heard;
    private long position;

    /** @param heard called for each frame: the service is alive */
    Reception(Outbox outbox, Runnable heard) {
        this.outbox = outbox;
        this.heard = heard;
    }

    /**
     * Take frames until the connection ends.
     *
     * @throws IOException it was lost
     * @throws GoodbyeException the service sent us away
     * @throws ProtocolException what came is not the protocol
     */
    void listen(FrameChannel from) throws IOException, GoodbyeException {
        while (true) {
            ByteBuffer frame = from.read();
            heard.run();
            int type = frame.get() & 0xff;
            Unpacker body = new Unpacker(frame);
            switch (type) {
                case Frames.DONE -> {
                    body.array();
                    long through = body.integer();
                    List<Outbox.Refusal> refusals = Welcome.refusals(body);
                    position = body.integer();
                    outbox.answered(through, refusals).forEach(Outbox.Settled::tell);
                }
                case Frames.ANSWER -> answer(body);
                case Frames.FAILED -> failed(body);
                case Frames.GOODBYE -> throw GoodbyeException.of(body);
                default -> throw new ProtocolException("a frame of unknown type " + type);
            }
        }
    }

    /** The last position that the service called durable in a DONE; 0 before the first. */
    long position() {
        return position;
    }

    private void answer(Unpacker body) {
        body.array();
        long number = body.integer();
        boolean isLast = body.bool();
        Read read = outbox.read(number, isLast);
        if (read != null) {
            read.answer.take(body, isLast);
        }
    }

    private void failed(Unpacker body) {
        body.array();
        Read read = outbox.read(body.integer(), true);
        if (read != null) {
            read.answer.fail(Failures.of(body.text(), body.text()));
        }
    }
}
