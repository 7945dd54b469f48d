package sparkstore.brokerj.store;

import java.util.List;
import org.apache.qpid.server.bytebuffer.QpidByteBuffer;
import org.apache.qpid.server.message.EnqueueableMessage;
import org.apache.qpid.server.store.MessageHandle;
import org.apache.qpid.server.store.StorableMessageMetaData;
import org.apache.qpid.server.store.StoredMessage;
import sparkstore.brokerj.service.Loaded;
import sparkstore.brokerj.store.Keeping.Kept;

/**
 * A message: first a handle that takes its content, then the message itself.
 *
 * <p>Contract: nothing is written before the first transaction that enqueues it (point 1);
 * {@link #flowToDisk} of an unwritten message writes it first; metadata and content come back by
 * message id, from any thread (point 7); the size in memory is exactly metadata plus content, each
 * 0 while it is evacuated (point 8); delete listeners see the metadata (point 6).
 *
 * <p>What is in memory is guarded by the message's own monitor, which is held while content is read
 * back. What is evacuated was durable before: a message whose first enqueue is under way is kept in
 * memory until it is done ({@link Keeping}).
 */
final class SparkStoredMessage<T extends StorableMessageMetaData>
        implements StoredMessage<T>, MessageHandle<T> {
    /**
     * What an enqueue has to bring.
     *
     * @param header packed message header
     * @param body content, or null if the service has it
     */
    record Brought(byte[] header, byte[] body) {
    }

    private final SparkStoreMessageStore store;
    private final long messageId;
    private final int contentSize;
    private final int metadataSize;
    private final Keeping keeping;
    private T metaData;
    private QpidByteBuffer content;
    private boolean isRemoved;
    private boolean isLeaving;
    private byte[] knownHeader;

    SparkStoredMessage(SparkStoreMessageStore store, long messageId, T metaData, Kept kept) {
        this.store = store;
        this.messageId = messageId;
        this.metaData = metaData;
        keeping = new Keeping(kept);
        contentSize = metaData.getContentSize();
        metadataSize = metaData.getStorableSize();
        store.inMemory(metadataSize);
    }

    @Override
    public synchronized void addContent(QpidByteBuffer more) {
        if (content == null) {
            content = more.slice();
        } else {
            try (QpidByteBuffer before = content) {
                content = QpidByteBuffer.concatenate(List.of(before, more));
            }
        }
    }

    @Override
    public StoredMessage<T> allContentAdded() {
        store.inMemory(contentSize);
        return this;
    }

    @Override
    public synchronized T getMetaData() {
        if (metaData == null && !isRemoved) {
            metaData = decoded(load());
            store.inMemory(metadataSize);
        }
        return metaData;
    }

    @SuppressWarnings("unchecked")
    private T decoded(Loaded loaded) {
        return (T) MetaData.decode(messageId, loaded.header());
    }

    private Loaded load() {
        return store.session().client().load(messageId);
    }

    @Override
    public long getMessageNumber() {
        return messageId;
    }

    @Override
    public synchronized QpidByteBuffer getContent(int offset, int length) {
        if (content == null && keeping.now() != Kept.NOWHERE && contentSize > 0 && !isRemoved) {
            content = QpidByteBuffer.wrap(load().body());
            store.inMemory(contentSize);
        }
        if (content == null) {
            return QpidByteBuffer.emptyQpidByteBuffer();
        }
        return content.view(offset, length == Integer.MAX_VALUE ? content.remaining() : length);
    }

    @Override
    public int getContentSize() {
        return contentSize;
    }

    @Override
    public int getMetadataSize() {
        return metadataSize;
    }

    @Override
    public synchronized boolean isInContentInMemory() {
        return !isRemoved && (keeping.now() == Kept.NOWHERE || content != null);
    }

    @Override
    public synchronized long getInMemorySize() {
        return (metaData == null ? 0 : metadataSize) + contentBytesInMemory();
    }

    private long contentBytesInMemory() {
        return content == null ? 0 : contentSize;
    }

    /** Forget content and metadata; false if that has to wait until they are durable. */
    @Override
    public synchronized boolean flowToDisk() {
        if (isRemoved || keeping.isFirstInFlight()) {
            return isRemoved;
        }
        if (keeping.now() == Kept.NOWHERE) {
            store.stage(messageId, columns(null).whole(), contentBytes());
            keeping.keep(Kept.STAGED);
        }
        long cleared = isLeaving ? dropContent() : drop(false);
        store.inMemory(-cleared);
        store.evacuated(cleared);
        return true;
    }

    /**
     * A dequeue of it is about to be sent, after which the service may have forgotten it, while
     * delete listeners shall still read its metadata: it stays in memory from now on.
     */
    synchronized void leaving() {
        isLeaving = true;
        if (keeping.now() == Kept.RECOVERED) {
            keeping.keep(Kept.ENQUEUED);
        }
        getMetaData();
    }

    /**
     * A transaction that puts it on a queue is built: what its record has to bring.
     *
     * <p>Everything, until an enqueue is known to be durable: one that was sent before this may yet
     * be refused, and its content with it. The service takes content that it has already as named.
     *
     * @param isBrought an earlier record of the same transaction brings it
     */
    synchronized Brought enqueue(EnqueueableMessage<?> message, boolean isBrought) {
        if (isBrought) {
            return new Brought(known(message), null);
        }
        return switch (keeping.now()) {
            case NOWHERE -> new Brought(columns(message).whole(), contentBytes());
            case STAGED -> new Brought(columns(message).whole(), null);
            case RECOVERED, ENQUEUED -> new Brought(known(message), null);
        };
    }

    /** An XA branch that will enqueue it is prepared; null if the service has it already. */
    synchronized Brought prepare(EnqueueableMessage<?> message) {
        return keeping.now() == Kept.NOWHERE
                ? new Brought(columns(message).whole(), contentBytes()) : null;
    }

    /** Where it is kept, told by transactions as they are sent and decided. */
    Keeping keeping() {
        return keeping;
    }

    private byte[] known(EnqueueableMessage<?> message) {
        if (knownHeader == null) {
            knownHeader = columns(message).known();
        }
        return knownHeader;
    }

    private HeaderColumns columns(EnqueueableMessage<?> message) {
        HeaderColumns columns = MessageColumns.of(this, getMetaData(), message);
        knownHeader = columns.known();
        return columns;
    }

    private byte[] contentBytes() {
        byte[] bytes = new byte[content == null ? 0 : content.remaining()];
        if (content != null) {
            content.copyTo(bytes);
        }
        return bytes;
    }

    /**
     * It is gone. The service forgets a message with its last dequeue, so there is nothing to send,
     * unless it is on queues still, which it is taken off, or it was staged and never enqueued: its
     * XA branch was rolled back, or the broker was killed while it prepared one, and found this left
     * over. An id that was never stored is no error.
     */
    @Override
    public synchronized void remove() {
        store.checkOpen();
        if (isRemoved) {
            return;
        }
        getMetaData();
        store.removed(this);
        List<EntryRecord> entries = keeping.entries();
        if (!entries.isEmpty()) {
            store.takeOff(entries);
        } else if (keeping.now() == Kept.STAGED || keeping.now() == Kept.RECOVERED) {
            store.unstage(messageId);
        }
        isRemoved = true;
        store.inMemory(-drop(true));
    }

    @Override
    public synchronized void reallocate() {
        if (metaData != null) {
            metaData.reallocate();
        }
        content = QpidByteBuffer.reallocateIfNecessary(content);
    }

    /** The store closes: let go of the memory, without accounting. */
    synchronized void clear() {
        isRemoved = true;
        drop(true);
    }

    /** Bytes that were let go of. */
    private long drop(boolean forGood) {
        long bytes = dropContent() + (metaData == null ? 0 : metadataSize);
        if (metaData != null) {
            if (forGood) {
                metaData.dispose();
            } else {
                metaData.clearEncodedForm();
            }
            metaData = null;
        }
        return bytes;
    }

    private long dropContent() {
        long bytes = contentBytesInMemory();
        if (content != null) {
            content.dispose();
            content = null;
        }
        return bytes;
    }
}
