package sparkstore.brokerj.store;

import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.message.ServerMessage;
import org.apache.qpid.server.message.internal.InternalMessageMetaData;
import org.apache.qpid.server.plugin.MessageMetaDataType;
import org.apache.qpid.server.store.StorableMessageMetaData;
import org.apache.qpid.server.store.StoredMessage;

/** Finds the broker's view of a message, from which its columns are taken. */
final class MessageColumns {
    private MessageColumns() {
    }

    /** @param message what the broker enqueues; null if there is only the stored message */
    static <T extends StorableMessageMetaData> HeaderColumns of(
            StoredMessage<T> stored, T metaData, EnqueueableMessage<?> message) {
        ServerMessage<?> whole = message instanceof ServerMessage<?> known
                ? known : serverMessage(stored, metaData);
        return new HeaderColumns(MetaData.protocol(metaData), MetaData.encode(metaData),
                stored.getContentSize(),
                whole == null ? null : whole.getMessageHeader(),
                whole == null ? null : whole.getTo());
    }

    /** The message as its protocol sees it; null if it cannot be made of metadata and content. */
    @SuppressWarnings("unchecked")
    private static <T extends StorableMessageMetaData> ServerMessage<?> serverMessage(
            StoredMessage<T> stored, T metaData) {
        if (metaData instanceof InternalMessageMetaData) {
            return null;  // it would decode the content; what the broker enqueues is a ServerMessage
        }
        try {
            return ((MessageMetaDataType<T>) metaData.getType()).createMessage(stored);
        } catch (RuntimeException garbled) {
            return null;
        }
    }
}
