package sparkstore.brokerj.store;

import org.apache.qpid.server.bytebuffer.QpidByteBuffer;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.message.ServerMessage;
import org.apache.qpid.server.plugin.MessageMetaDataType;
import org.apache.qpid.server.store.MessageStore;
import org.apache.qpid.server.store.StorableMessageMetaData;
import org.apache.qpid.server.store.StoredMessage;

/** Metadata of a protocol whose plugin is there when they are written, and not at the next start. */
record OtherMetaData(int ordinal) implements StorableMessageMetaData {
    private record Type(int ordinal) implements MessageMetaDataType<OtherMetaData> {
        @Override
        public String getType() {
            return "other";
        }

        @Override
        public OtherMetaData createMetaData(QpidByteBuffer buffer) {
            return new OtherMetaData(ordinal);
        }

        @Override
        public ServerMessage<OtherMetaData> createMessage(StoredMessage<OtherMetaData> stored) {
            throw new IllegalStateException("its protocol has no messages");
        }
    }

    private record Message(StoredMessage<OtherMetaData> getStoredMessage)
            implements EnqueueableMessage<OtherMetaData> {
        @Override
        public StoredMessage<OtherMetaData> getStoredMessage() {
            return getStoredMessage;
        }

        @Override
        public long getMessageNumber() {
            return getStoredMessage.getMessageNumber();
        }

        @Override
        public boolean isPersistent() {
            return true;
        }
    }

    /** A message without content. */
    static EnqueueableMessage<?> message(MessageStore store, int ordinal) {
        return new Message(store.addMessage(new OtherMetaData(ordinal)).allContentAdded());
    }

    @Override
    public MessageMetaDataType<OtherMetaData> getType() {
        return new Type(ordinal);
    }

    @Override
    public int getStorableSize() {
        return 1;
    }

    @Override
    public void writeToBuffer(QpidByteBuffer buffer) {
        buffer.put((byte) 7);
    }

    @Override
    public int getContentSize() {
        return 0;
    }

    @Override
    public boolean isPersistent() {
        return true;
    }

    @Override
    public void dispose() {
        // Nothing is held.
    }

    @Override
    public void clearEncodedForm() {
        // Nothing is held.
    }

    @Override
    public void reallocate() {
        // Nothing is held.
    }
}
