package sparkstore.brokerj.service;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.Packer;
import sparkstore.brokerj.wire.ProtocolException;
import sparkstore.brokerj.wire.Unpacker;

/**
 * The service's answer to HELLO.
 *
 * @param lastRequest the highest request of this member that was ever decided
 * @param instance UUID of this run of the service
 * @param rootId identity of the root that it serves
 * @param refusals of the latest requests
 * @param maxFrameBytes longest frame that it takes
 * @param maxWaitingRequests how many requests may be unanswered
 * @param generation of the root; each promotion of a replica raises it
 * @param position of the newest record of the root
 */
record Welcome(
        long lastRequest,
        String instance,
        String rootId,
        List<Outbox.Refusal> refusals,
        int maxFrameBytes,
        int maxWaitingRequests,
        long generation,
        long position) {

    /** @throws GoodbyeException the service sent us away; @throws ProtocolException garbage */
    static Welcome of(ByteBuffer frame) throws GoodbyeException {
        int type = frame.get() & 0xff;
        Unpacker body = new Unpacker(frame);
        if (type == Frames.GOODBYE) {
            throw GoodbyeException.of(body);
        }
        if (type != Frames.WELCOME) {
            throw new ProtocolException("a frame of type " + type + " in answer to HELLO");
        }
        body.array();
        long version = body.integer();
        if (version != Frames.VERSION) {
            throw new GoodbyeException("InvalidRequest", "this plugin speaks version "
                    + Frames.VERSION + " of the store protocol, the service version " + version);
        }
        return new Welcome(body.integer(), body.text(), body.text(), refusals(body),
                (int) body.integer(), (int) body.integer(), body.integer(), body.integer());
    }

    /**
     * Pack what this broker has seen of the root, for the next HELLO.
     *
     * @param lastPosition the last that the service called durable since this welcome
     */
    byte[] seen(long lastPosition) {
        return new Packer(128).array(4).text(rootId).integer(generation).text(instance)
                .integer(Math.max(position, lastPosition)).toBytes();
    }

    /** A list of [request, error, message]. */
    static List<Outbox.Refusal> refusals(Unpacker body) {
        int count = body.array();
        List<Outbox.Refusal> refusals = new ArrayList<>(count);
        for (int left = count; left > 0; left--) {
            body.array();
            refusals.add(new Outbox.Refusal(body.integer(), body.text(), body.text()));
        }
        return refusals;
    }
}
