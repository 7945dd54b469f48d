package sparkstore.brokerj.service;

import java.io.IOException;
import java.util.function.Supplier;
import sparkstore.brokerj.wire.Frames;

/** A numbered frame that waits to be sent or answered. */
abstract sealed class Outgoing implements Frame permits Request, Read {
    private final int type;
    private final int elementCount;
    private int restBytes;
    private Supplier<byte[]> rest;
    long number;
    long sinceNanos;
    /** Was it handed to a connection? Then it may have been decided, whatever came back. */
    boolean wasSent;

    /**
     * @param elementCount elements of the frame's array after its number
     * @param restBytes length of {@code rest}
     * @param rest packed elements after the number: the same bytes each time it is asked
     */
    Outgoing(int type, int elementCount, int restBytes, Supplier<byte[]> rest) {
        this.type = type;
        this.elementCount = elementCount;
        this.restBytes = restBytes;
        this.rest = rest;
    }

    final int restBytes() {
        return restBytes;
    }

    @Override
    public final void writeTo(FrameChannel to) throws IOException {
        to.write(Frames.lead(type, number, 1 + elementCount, restBytes));
        to.write(rest.get());
    }

    /** Say this instead, of as many elements. Only for a frame that was not decided. */
    final void replace(byte[] by) {
        restBytes = by.length;
        rest = () -> by;
    }
}
