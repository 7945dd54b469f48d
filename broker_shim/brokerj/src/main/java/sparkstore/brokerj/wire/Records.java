package sparkstore.brokerj.wire;

/**
 * The records that the plugin sends: arrays of 16, as sparkstore/core/codec.py packs them. The service
 * stamps the time, the member, the request and the transaction, so those fields are 0 or nil here.
 *
 * <pre>
 * kind, at, queue, message_id, holder, delivery_count, transaction, message, body, body_offset,
 * exchange, binding_key, detail, member, request, xid
 * </pre>
 */
public final class Records {
    static final int CREATED = 3;
    static final int DESTROYED = 4;
    static final int CONTENT = 7;
    static final int ENQUEUED = 8;
    static final int DEQUEUED = 9;
    static final int CONFIGURED = 12;
    static final int UNCONFIGURED = 13;
    static final int STAGING_ABORTED = 15;

    /** Fields behind header and body, a byte each. */
    static final int AFTER_CONTENT = 7;

    private static final int FIELDS = 16;

    private Records() {
    }

    /** A queue came to be; {@code detail} is its definition. */
    public static void created(Packer to, String queue, String detail) {
        begin(to, CREATED, queue, null);
        nils(to, 8).text(detail);
        nils(to, 3);
    }

    /** A queue and every entry on it went. */
    public static void destroyed(Packer to, String queue) {
        begin(to, DESTROYED, queue, null);
        nils(to, 12);
    }

    /**
     * A message was put on a queue.
     *
     * @param header the packed message header: whole on the message's first queue, else the part
     *     that every entry needs
     * @param body content; null if it is with the service already
     * @return where in {@code to} the header begins; the body follows, and ends {@link
     *     #AFTER_CONTENT} bytes before the record does
     */
    static int enqueued(Packer to, String queue, long messageId, byte[] header, byte[] body) {
        begin(to, ENQUEUED, queue, messageId);
        int content = nils(to, 3).size();
        nils(to.append(header, 0, header.length).binary(body), AFTER_CONTENT);
        return content;
    }

    /** A message left a queue for good. */
    public static void dequeued(Packer to, String queue, long messageId) {
        begin(to, DEQUEUED, queue, messageId);
        nils(to, 12);
    }

    /** What one BATCH says of all its messages: the record without message id, header and body. */
    static void ofEach(Packer to, int kind, String queue) {
        begin(to, kind, queue, null);
        nils(to, 12);
    }

    /**
     * One piece of content that is on no queue yet.
     *
     * @param header the packed whole header where the message may stay on no queue (prepared in an
     *     XA branch, or flowed to disk before it is enqueued), else null
     */
    public static void content(
            Packer to, long messageId, byte[] header, int bodyOffset, byte[] body, int length) {
        begin(to, CONTENT, null, messageId);
        nils(to, 3);
        if (header == null) {
            to.nil();
        } else {
            to.append(header, 0, header.length);
        }
        to.binary(body, bodyOffset, length).integer(bodyOffset);
        nils(to, 6);
    }

    /** A configured object is as {@code detail} (JSON) says, whether or not it was there. */
    public static void configured(Packer to, String category, String key, String detail) {
        begin(to, CONFIGURED, null, null);
        nils(to, 6).text(category).text(key).text(detail);
        nils(to, 3);
    }

    /** A configured object is no more, if it was. */
    public static void unconfigured(Packer to, String category, String key) {
        begin(to, UNCONFIGURED, null, null);
        nils(to, 6).text(category).text(key);
        nils(to, 4);
    }

    /** A message that is on no queue will not be put on one: forget what was kept of it. */
    public static void stagingAborted(Packer to, long messageId) {
        begin(to, STAGING_ABORTED, null, messageId);
        nils(to, 12);
    }

    private static void begin(Packer to, int kind, String queue, Long messageId) {
        to.array(FIELDS).integer(kind).integer(0).text(queue).integerOrNil(messageId);
    }

    private static Packer nils(Packer to, int count) {
        for (int left = count; left > 0; left--) {
            to.nil();
        }
        return to;
    }
}
