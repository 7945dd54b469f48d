package sparkstore.brokerj.service;

import java.io.IOException;

/** What goes to the service as one frame. */
interface Frame {
    /** Write all of it; by one thread at a time. */
    void writeTo(FrameChannel to) throws IOException;
}
