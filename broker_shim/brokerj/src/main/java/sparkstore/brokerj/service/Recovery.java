package sparkstore.brokerj.service;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import sparkstore.brokerj.wire.ProtocolException;
import sparkstore.brokerj.wire.Unpacker;

/**
 * What is in the store, section by section, as RECOVER answers: wiring, configured objects,
 * branches in doubt, messages, entries, the end. One thread takes sections while the reading thread adds them.
 *
 * <p>The queue between both has no bound: the reading thread must never wait, or the completions of
 * the same connection would wait with it. At most the headers of all messages are held, once, which
 * the broker is about to hold anyway.
 */
public final class Recovery implements Read.Answer {
    /** One answer, or {@link Again}. */
    public sealed interface Section {
    }

    /** A queue, exchange or binding. {@code name} is null for a binding, which we have none of. */
    public record Wiring(String type, String name, String detail) implements Section {
    }

    public record Configured(String category, String key, String detail) implements Section {
    }

    /** A message and a queue that it is put on, or taken off. */
    public record Place(String queue, long messageId) {
    }

    /** What a branch in doubt does, or a part of it: the others come with the same xid. */
    public record Branch(byte[] xid, List<Place> enqueues, List<Place> dequeues)
            implements Section {
    }

    /** Columns of up to 10,000 messages, ids rising. */
    public record Messages(long[] ids, byte[][] headers, long[] bodyBytes) implements Section {
    }

    /** The entries of one queue, message ids rising. */
    public record Entries(String queue, long[] messageIds) implements Section {
    }

    /** The last section. */
    public record End(long nextMessageId) implements Section {
    }

    /** The connection was lost: everything comes again from the first section. */
    public record Again() implements Section {
    }

    private record Failed(RuntimeException failure) implements Section {
    }

    private final BlockingQueue<Section> sections = new LinkedBlockingQueue<>();

    Recovery() {
    }

    /**
     * The next section, waiting for it; after {@link End} there is none.
     *
     * @throws RuntimeException the service refused, or went away for too long
     */
    public Section next() {
        try {
            Section section = sections.take();
            if (section instanceof Failed failed) {
                throw failed.failure();
            }
            return section;
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
            throw Failures.away("interrupted while recovering");
        }
    }

    @Override
    public void take(Unpacker body, boolean isLast) {
        String name = body.text();
        switch (name) {
            case "wiring" -> wiring(body);
            case "configured" -> configured(body);
            case "branches" -> branches(body);
            case "messages" -> sections.add(messages(body));
            case "entries" -> sections.add(new Entries(body.text(), longs(body.binary())));
            case "end" -> sections.add(new End(body.integer()));
            default -> throw new ProtocolException("unknown section '" + name + "' of RECOVER");
        }
    }

    private void wiring(Unpacker body) {
        for (int left = body.array(); left > 0; left--) {
            body.array();
            String type = body.text();
            String name = null;
            if (body.textIsNext()) {
                name = body.text();
            } else {
                body.skip();
            }
            sections.add(new Wiring(type, name, body.text()));
        }
    }

    private void configured(Unpacker body) {
        for (int left = body.array(); left > 0; left--) {
            body.array();
            sections.add(new Configured(body.text(), body.text(), body.text()));
        }
    }

    private void branches(Unpacker body) {
        for (int left = body.array(); left > 0; left--) {
            body.array();
            sections.add(new Branch(body.binary(), places(body), places(body)));
        }
    }

    private static List<Place> places(Unpacker body) {
        List<Place> places = new ArrayList<>();
        for (int left = body.array(); left > 0; left--) {
            body.array();
            places.add(new Place(body.text(), body.integer()));
        }
        return places;
    }

    private static Messages messages(Unpacker body) {
        long[] ids = longs(body.binary());
        ByteBuffer lengths = ByteBuffer.wrap(body.binary());
        ByteBuffer encoded = ByteBuffer.wrap(body.binary());
        long[] bodyBytes = longs(body.binary());
        byte[][] headers = new byte[ids.length][];
        for (int n = 0; n < ids.length; n++) {
            int length = lengths.getInt();
            if (length >= 0) {
                headers[n] = new byte[length];
                encoded.get(headers[n]);
            }
        }
        return new Messages(ids, headers, bodyBytes);
    }

    private static long[] longs(byte[] bigEndian) {
        long[] numbers = new long[bigEndian.length / Long.BYTES];
        ByteBuffer.wrap(bigEndian).asLongBuffer().get(numbers);
        return numbers;
    }

    @Override
    public void fail(RuntimeException failure) {
        sections.add(new Failed(failure));
    }

    @Override
    public void restart() {
        sections.add(new Again());
    }
}
