package sparkstore.brokerj.store;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import org.apache.qpid.server.message.AMQMessageHeader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import sparkstore.brokerj.wire.Packer;

/**
 * What SQL sees of a message, taken at write time from the broker's own header interface, which all
 * its protocols implement. Packs the message header of sparkstore/core/records.py, an array of 20.
 *
 * <p>{@code durable} is always true: what the broker gives to its store it wants kept, also a
 * transient message on a queue whose messageDurability is ALWAYS.
 */
final class HeaderColumns {
    private static final Logger LOGGER = LoggerFactory.getLogger(HeaderColumns.class);
    private static final int FIELDS = 20;
    private static final int DEFAULT_PRIORITY = 4;
    private static final int MAX_PRIORITY = 9;
    private static final int TEXT_COLUMNS = 11;
    /** 9999-12-31 23:59:59.999: later times are no timestamp to the engines. */
    private static final long LAST_MS = 253_402_300_799_999L;

    private final String protocol;
    private final byte[] encoded;
    private final int bodyBytes;
    private final List<String> texts = new ArrayList<>(TEXT_COLUMNS);
    private final List<String> properties = new ArrayList<>();
    private int priority = DEFAULT_PRIORITY;
    private Long createdAt;
    private Long expiresAt;

    /**
     * @param protocol how {@code encoded} is encoded
     * @param encoded type and metadata, the protocol's own encoding
     * @param bodyBytes length of the content
     * @param header for the columns; null, or one that cannot be read, leaves them empty, because it
     *     must not stop its message
     * @param to where the message was sent, if that is known
     */
    HeaderColumns(
            String protocol, byte[] encoded, int bodyBytes, AMQMessageHeader header, String to) {
        this.protocol = protocol;
        this.encoded = encoded;
        this.bodyBytes = bodyBytes;
        try {
            if (header != null) {
                read(header, to);
            }
        } catch (RuntimeException unreadable) {
            LOGGER.debug("a message has a header that cannot be read", unreadable);
            texts.clear();
            properties.clear();
        }
        while (texts.size() < TEXT_COLUMNS) {
            texts.add(null);
        }
    }

    private void read(AMQMessageHeader header, String to) {
        priority = Math.max(0, Math.min(MAX_PRIORITY, header.getPriority()));
        createdAt = micros(header.getTimestamp());
        expiresAt = micros(header.getExpiration());
        texts.add(header.getMimeType());
        texts.add(header.getEncoding());
        texts.add(header.getCorrelationId());
        texts.add(header.getReplyTo());
        texts.add(Subject.of(header));
        texts.add(to);
        texts.add(header.getUserId());
        texts.add(header.getAppId());
        texts.add(header.getType());
        texts.add(header.getMessageId());
        texts.add(header.getGroupId());
        for (String name : header.getHeaderNames()) {
            String value = text(header.getHeader(name));
            if (value != null) {
                properties.add(name);
                properties.add(value);
            }
        }
    }

    /** Milliseconds, 0 for none, to microseconds, null for none. */
    private static Long micros(long ms) {
        return ms <= 0 || ms > LAST_MS ? null : ms * 1000;
    }

    /** A property as text; null for what is not a primitive. */
    static String text(Object value) {
        if (value instanceof byte[] bytes) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        if (value instanceof Date date) {
            return Instant.ofEpochMilli(date.getTime()).toString();
        }
        boolean isPrimitive = value instanceof CharSequence || value instanceof Number
                || value instanceof Boolean || value instanceof Character
                || value instanceof java.util.UUID;
        return isPrimitive || isAmqpPrimitive(value) ? value.toString() : null;
    }

    private static boolean isAmqpPrimitive(Object value) {
        return value != null && value.getClass().getName()
                .startsWith("org.apache.qpid.server.protocol.v1_0.type.");
    }

    /** The whole header: on the first queue of a message. */
    byte[] whole() {
        Packer to = new Packer(256 + encoded.length).array(FIELDS)
                .text(protocol).binary(encoded).bool(true).integer(priority)
                .integerOrNil(createdAt).integerOrNil(expiresAt);
        texts.forEach(to::text);
        to.integer(encoded.length).integer(bodyBytes).array(properties.size() / 2);
        for (int n = 0; n < properties.size(); n += 2) {
            to.array(2).text(properties.get(n)).text(properties.get(n + 1));
        }
        return to.toBytes();
    }

    /** The part that every entry needs: on later queues. */
    byte[] known() {
        return known(priority, expiresAt, encoded.length, bodyBytes);
    }

    private static byte[] known(int priority, Long expiresAt, int headerBytes, int bodyBytes) {
        Packer to = new Packer(48).array(FIELDS).nil().nil().bool(true).integer(priority)
                .nil().integerOrNil(expiresAt);
        for (int n = 0; n < TEXT_COLUMNS; n++) {
            to.nil();
        }
        return to.integer(headerBytes).integer(bodyBytes).array(0).toBytes();
    }
}
