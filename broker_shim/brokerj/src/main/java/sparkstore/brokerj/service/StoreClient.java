package sparkstore.brokerj.service;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongFunction;
import org.apache.qpid.server.util.ConnectionScopedRuntimeException;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.Packer;
import sparkstore.brokerj.wire.RecordBatch;
import sparkstore.brokerj.wire.Records;
import sparkstore.brokerj.wire.Unpacker;

/** What a store asks of the service, over one {@link ServiceConnection}. Any thread may call it. */
public final class StoreClient implements AutoCloseable {
    /** Content of more than this goes as pieces of this size where a frame would be too long. */
    public static final int PIECE_BYTES = 1 << 20;
    /** Room in a frame for its lead and the head of its array. */
    private static final int OVERHEAD_BYTES = 64;
    private static final int MAX_RECORDS = 65_536;
    private static final int PART_BYTES = 4 << 20;
    private static final byte[] NOTHING = new byte[0];
    private static final byte[] NO_RECORDS = new Packer(1).array(0).toBytes();

    private final ServiceConnection connection;
    private final AtomicLong lastTransaction = new AtomicLong();

    /** Connects; see {@link ServiceConnection#open} for what can go wrong. */
    public StoreClient(ServiceSettings settings) {
        connection = new ServiceConnection(settings);
        connection.open();
    }

    /** Would these bytes of records fit in one frame? */
    public boolean fitsOneFrame(long recordBytes) {
        return recordBytes + OVERHEAD_BYTES <= connection.maxFrameBytes();
    }

    /**
     * Make records true together, durably.
     *
     * @param pieces content that was sent before and belongs to them; null if there is none
     * @param isUrgent the caller waits for it now
     */
    public CompletableFuture<Void> submit(RecordBatch batch, Pieces pieces, boolean isUrgent) {
        if (!fitsOneFrame(batch.size()) || batch.count() > MAX_RECORDS) {
            return inParts(batch, pieces == null ? new Group() : pieces.group, isUrgent);
        }
        byte[] records = batch.toArray();
        Group group = pieces == null ? null : pieces.group;
        return last(Request.records(records, batch.single(records), group, NO_RECORDS), isUrgent);
    }

    /**
     * Prepare a branch of a distributed transaction, durably: its records become true when it is
     * committed. Its configured objects change at once.
     *
     * @param xid packed, as the column of the tables has it
     * @param pieces content that was sent before and belongs to the records; null if there is none
     * @param isUrgent the caller waits for it now
     */
    public CompletableFuture<Void> prepare(
            RecordBatch batch, byte[] xid, Pieces pieces, boolean isUrgent) {
        return inParts(batch, pieces == null ? new Group() : pieces.group, number -> new Ending(
                Frames.PREPARE, preparing(number, xid, batch.objects()),
                preparing(number, NOTHING, NO_RECORDS)), isUrgent);
    }

    /** Commit a branch that is prepared, or roll it back; durably. */
    public CompletableFuture<Void> decide(byte[] xid, boolean isCommit, boolean isUrgent) {
        byte[] rest = deciding(xid, isCommit);
        byte[] nothing = deciding(NOTHING, isCommit);
        return last(new Request(Frames.DECIDE, 2, rest.length, () -> rest, null, nothing), isUrgent);
    }

    /**
     * Roll a branch back of which nobody knows whether it is prepared, whenever the service is there
     * again: this is never withdrawn, and a branch that is not there makes no difference.
     */
    public void rollBackIfPrepared(byte[] xid) {
        byte[] rest = deciding(xid, false);
        last(new Request(Frames.DECIDE, 2, rest.length, () -> rest, null), false);
    }

    private static byte[] preparing(long transaction, byte[] xid, byte[] objects) {
        return new Packer(objects.length + xid.length + 16).integer(transaction).binary(xid)
                .append(objects, 0, objects.length).toBytes();
    }

    private static byte[] deciding(byte[] xid, boolean isCommit) {
        return new Packer(xid.length + 8).binary(xid).bool(isCommit).toBytes();
    }

    /** The last frame of a transaction, without its request number; {@code nothing} ends it without effect. */
    private record Ending(int type, byte[] rest, byte[] nothing) {
    }

    private CompletableFuture<Void> inParts(RecordBatch batch, Group group, boolean isUrgent) {
        return inParts(batch, group, number -> new Ending(Frames.END,
                end(number, true, batch.objects()), end(number, false, NO_RECORDS)), isUrgent);
    }

    /**
     * As a transaction of several frames: OPEN, ADD for each part, and an ending with the configured
     * objects.
     *
     * @throws ConnectionScopedRuntimeException those do not fit in one frame; nothing was sent
     */
    private CompletableFuture<Void> inParts(
            RecordBatch batch, Group group, LongFunction<Ending> endings, boolean isUrgent) {
        long transaction = lastTransaction.incrementAndGet();
        Ending ending = endings.apply(transaction);
        if (!fitsOneFrame(ending.rest().length)) {
            connection.abandon(group);
            throw new ConnectionScopedRuntimeException("a transaction with objects of "
                    + ending.rest().length + " bytes cannot be prepared: split it");
        }
        byte[] number = new Packer(9).integer(transaction).toBytes();
        submitPart(new Request(Frames.OPEN, 1, number.length, () -> number, group));
        for (int first = 0; first < batch.entryCount();) {
            int upTo = batch.fitting(first, PART_BYTES, MAX_RECORDS);
            byte[] part = batch.entries(first, upTo);
            byte[] rest = new Packer(part.length + 9).integer(transaction)
                    .append(part, 0, part.length).toBytes();
            submitPart(new Request(Frames.ADD, 2, rest.length, () -> rest, group));
            first = upTo;
        }
        return last(new Request(ending.type(), 3, ending.rest().length, ending::rest, group,
                ending.nothing()), isUrgent);
    }

    private static byte[] end(long transaction, boolean isCommit, byte[] objects) {
        return new Packer(objects.length + 10).integer(transaction).bool(isCommit)
                .append(objects, 0, objects.length).toBytes();
    }

    private CompletableFuture<Void> submitPart(Request part) {
        try {
            return connection.submit(part, false);
        } catch (RuntimeException failure) {
            connection.abandon(part.group);
            throw failure;
        }
    }

    private CompletableFuture<Void> last(Request request, boolean isUrgent) {
        if (request.group != null) {
            request.group.last = request;
        }
        try {
            return connection.submit(request, isUrgent);
        } catch (RuntimeException failure) {
            if (request.group != null) {
                connection.abandon(request.group);
            }
            throw failure;
        }
    }

    /** Content sent ahead of the records that need it. */
    public final class Pieces {
        private final Group group = new Group();

        /**
         * Send one message's content in pieces, each durable on its own.
         *
         * @param header whole header, if the message may stay on no queue; else null
         * @return completed when all of it is durable
         */
        public CompletableFuture<Void> send(long messageId, byte[] header, byte[] body) {
            CompletableFuture<Void> durable = null;
            for (int offset = 0; offset == 0 || offset < body.length; offset += PIECE_BYTES) {
                int at = offset;
                byte[] first = offset == 0 ? header : null;
                int bytes = piece(messageId, first, at, body).length;
                durable = submitPart(new Request(
                        Frames.PIECE, 1, bytes, () -> piece(messageId, first, at, body), group));
            }
            return durable;
        }

        /** Keep them no longer: nothing that needs them will come. */
        public void abandon() {
            connection.abandon(group);
        }
    }

    private static byte[] piece(long messageId, byte[] header, int offset, byte[] body) {
        int length = Math.min(PIECE_BYTES, body.length - offset);
        Packer packer = new Packer(length + OVERHEAD_BYTES);
        Records.content(packer, messageId, header, offset, body, length);
        return packer.toBytes();
    }

    public Pieces newPieces() {
        return new Pieces();
    }

    /** Reserve message ids: completes with the first of {@code count} that are ours alone. */
    public CompletableFuture<Long> reserveIds(int count) {
        byte[] rest = new Packer(5).integer(count).toBytes();
        return one(Frames.IDS, 1, rest, Unpacker::integer);
    }

    /** Bytes of the root on disk. */
    public CompletableFuture<Long> sizeOnDisk() {
        return one(Frames.SIZE, 0, NOTHING, Unpacker::integer);
    }

    /** Completes when everything before it is where SQL sees it. */
    public CompletableFuture<Void> flush() {
        return one(Frames.FLUSH, 0, NOTHING, body -> null);
    }

    private <T> CompletableFuture<T> one(
            int type, int elementCount, byte[] rest, java.util.function.Function<Unpacker, T> value) {
        CompletableFuture<T> future = new CompletableFuture<>();
        connection.ask(new Read(type, elementCount, rest, new Read.Answer() {
            @Override
            public void take(Unpacker body, boolean isLast) {
                future.complete(value.apply(body));
            }

            @Override
            public void fail(RuntimeException failure) {
                future.completeExceptionally(failure);
            }
        }));
        return future;
    }

    /** A message by its id, content and all, from wherever it is, also if it is on no queue yet. */
    public Loaded load(long messageId) {
        Loaded.Collector collector = new Loaded.Collector();
        byte[] rest = new Packer(10).integer(messageId).bool(true).toBytes();
        connection.ask(new Read(Frames.LOAD, 2, rest, collector));
        return Failures.await(collector.loaded());
    }

    /** Begin to read what is in the store. */
    public Recovery recover() {
        Recovery recovery = new Recovery();
        connection.ask(new Read(Frames.RECOVER, 0, NOTHING, recovery));
        return recovery;
    }

    @Override
    public void close() {
        connection.close();
    }
}
