package sparkstore.brokerj.store;

import java.nio.ByteBuffer;
import org.apache.qpid.server.bytebuffer.QpidByteBuffer;
import org.apache.qpid.server.configuration.IllegalConfigurationException;
import org.apache.qpid.server.plugin.MessageMetaDataType;
import org.apache.qpid.server.store.MessageMetaDataTypeRegistry;
import org.apache.qpid.server.store.StorableMessageMetaData;

/**
 * A message's metadata as the store keeps it: the type's ordinal, then the metadata's own encoding.
 *
 * <pre>
 * u8 ordinal, 0 ..= 254; or u8 255 and i32 ordinal, big-endian (the broker's internal type is 999)
 * encoding as StorableMessageMetaData.writeToBuffer writes it
 * </pre>
 */
final class MetaData {
    private static final int LONG_FORM = 255;

    private MetaData() {
    }

    static byte[] encode(StorableMessageMetaData metaData) {
        int ordinal = metaData.getType().ordinal();
        boolean isShort = ordinal >= 0 && ordinal < LONG_FORM;
        ByteBuffer lead = ByteBuffer.allocate(1 + Integer.BYTES);
        if (isShort) {
            lead.put((byte) ordinal);
        } else {
            lead.put((byte) LONG_FORM).putInt(ordinal);
        }
        lead.flip();
        int size = metaData.getStorableSize();
        byte[] encoded = new byte[lead.remaining() + size];
        int at = lead.remaining();
        lead.get(encoded, 0, at);
        try (QpidByteBuffer buffer = QpidByteBuffer.allocate(size)) {
            metaData.writeToBuffer(buffer);
            buffer.flip();
            buffer.get(encoded, at, buffer.remaining());
        }
        return encoded;
    }

    /**
     * @throws IllegalConfigurationException the message is not one of the plugin's, or of a protocol
     *     that is not installed: the virtual host must not go on and lose it. It goes to ERRORED by
     *     this; by a StoreException, which is server-scoped, the start of the whole broker would end
     */
    static StorableMessageMetaData decode(long messageId, byte[] encoded) {
        if (encoded == null || encoded.length == 0) {
            throw new IllegalConfigurationException("message " + messageId + " was not written by Broker-J");
        }
        ByteBuffer bytes = ByteBuffer.wrap(encoded);
        int ordinal = bytes.get() & 0xff;
        if (ordinal == LONG_FORM) {
            ordinal = bytes.getInt();
        }
        MessageMetaDataType<?> type = type(messageId, ordinal);
        try (QpidByteBuffer buffer =
                QpidByteBuffer.wrap(encoded, bytes.position(), bytes.remaining())) {
            return type.createMetaData(buffer);
        }
    }

    private static MessageMetaDataType<?> type(long messageId, int ordinal) {
        MessageMetaDataType<?> type = null;
        try {
            type = MessageMetaDataTypeRegistry.fromOrdinal(ordinal);
        } catch (ArrayIndexOutOfBoundsException beyondTheLast) {
            // Said below, as for a gap.
        }
        if (type == null) {
            throw new IllegalConfigurationException("message " + messageId + " has metadata of type " + ordinal
                    + ": put the plugin of its protocol on the class path");
        }
        return type;
    }

    /** What the {@code protocol} column says: brokerj, and which of its protocols. */
    static String protocol(StorableMessageMetaData metaData) {
        int ordinal = metaData.getType().ordinal();
        return "brokerj:" + switch (ordinal) {
            case 0 -> "0-8";
            case 1 -> "0-10";
            case 2 -> "1.0";
            default -> String.valueOf(ordinal);
        };
    }
}
