package sparkstore.brokerj.service;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Consumer;
import java.util.function.LongFunction;
import sparkstore.brokerj.wire.Frames;
import sparkstore.brokerj.wire.Packer;
import sparkstore.brokerj.wire.ProtocolException;
import sparkstore.brokerj.wire.Unpacker;

/**
 * A service for tests of the connection alone, for faults that the real one cannot be made to have.
 * It keeps the protocol's promise: a request number is decided once, and counted for each DO, and
 * for each message of a BATCH.
 */
final class FakeService implements AutoCloseable {
    /** What to do with a request; one that meets silence is not decided. */
    enum Fate { ANSWER, KEEP_SILENT, LOSE_BEFORE, LOSE_AFTER, REFUSE, SEND_GARBAGE, SEND_HALF, SEND_FATAL }

    /** A frame of requests: its type, its first number, how many it is, and how long it was. */
    record Sent(int type, long first, int count, int bytes) {
    }

    private final ServerSocketChannel listening;
    final Path path;
    /** Numbers in the order in which they were decided. */
    final List<Long> decided = new ArrayList<>();
    /** Every HELLO that came: member, incarnation, host, token. */
    final BlockingQueue<List<String>> hellos = new LinkedBlockingQueue<>();
    /** For each hello, what it has seen: root, generation, instance and position; empty at first. */
    final BlockingQueue<String> seen = new LinkedBlockingQueue<>();
    final BlockingQueue<Long> received = new LinkedBlockingQueue<>();
    final BlockingQueue<Sent> frames = new LinkedBlockingQueue<>();
    /** Bytes of each request's frame after its number, as it came last. */
    final Map<Long, byte[]> said = new ConcurrentHashMap<>();
    volatile LongFunction<Fate> fate = number -> Fate.ANSWER;
    /** Answers HELLO with this instead of a welcome, if it is not null: [error, message]. */
    volatile String[] goodbye;
    volatile int version = Frames.VERSION;
    volatile boolean greets = true;
    volatile String instance = UUID.randomUUID().toString();
    volatile int maxWaiting = 16_384;
    volatile int maxFrameBytes = Frames.MAX_FRAME_BYTES;
    private volatile SocketChannel current;
    private long lastDecided;

    FakeService(Path path) throws IOException {
        this(path, made -> { });
    }

    /** @param setting what it is like from its first connection on */
    FakeService(Path path, Consumer<FakeService> setting) throws IOException {
        this.path = path;
        setting.accept(this);
        listening = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        listening.bind(UnixDomainSocketAddress.of(path));
        ServiceConnection.daemon(this::accept, "fake-service").start();
    }

    private void accept() {
        while (listening.isOpen()) {
            try (SocketChannel client = listening.accept()) {
                current = client;
                serve(client);
            } catch (IOException gone) {
                // The next connection, or the end.
            }
        }
    }

    /** The process is killed and another takes its place: connection lost, memory lost. */
    void restart() throws IOException {
        instance = UUID.randomUUID().toString();
        current.close();
    }

    private void serve(SocketChannel client) throws IOException {
        FrameChannel frames = new FrameChannel(client);
        if (!welcome(frames)) {
            return;
        }
        while (true) {
            ByteBuffer frame = frames.read();
            int length = frame.remaining();
            int type = frame.get() & 0xff;
            Unpacker body = new Unpacker(frame);
            body.array();
            long number = body.integer();
            if (type == Frames.IDS || type == Frames.SIZE || type == Frames.FLUSH) {
                send(client, Frames.ANSWER,
                        new Packer(16).array(3).integer(number).bool(true).integer(77));
            } else {
                byte[] rest = new byte[frame.remaining()];
                frame.get(rest);
                int count = type == Frames.BATCH ? messageCount(rest) : 1;
                this.frames.add(new Sent(type, number, count, length));
                for (long each = number; each < number + count; each++) {
                    said.put(each, rest);
                    if (!request(client, each)) {
                        return;
                    }
                }
            }
        }
    }

    /** How many messages a BATCH names; it has as many contents, or nil. */
    private static int messageCount(byte[] rest) {
        Unpacker body = new Unpacker(ByteBuffer.wrap(rest));
        body.skip();
        int count = body.array();
        for (int left = count; left > 0; left--) {
            body.integer();
        }
        if (!body.nil() && body.array() != count) {
            throw new ProtocolException("a BATCH of other messages than contents");
        }
        return count;
    }

    private boolean welcome(FrameChannel frames) throws IOException {
        ByteBuffer frame = frames.read();
        frame.get();
        Unpacker body = new Unpacker(frame);
        int elements = body.array();
        body.integer();
        List<String> hello = new ArrayList<>(List.of(body.text(), body.text(), body.text()));
        body.bool();
        hello.add(body.text());
        hellos.add(hello);
        seen.add(elements < 8 ? "" : seenOf(body));
        if (!greets) {
            return !waitForEnd(frames);
        }
        if (goodbye != null) {
            send(current, Frames.GOODBYE,
                    new Packer(64).array(2).text(goodbye[0]).text(goodbye[1]));
            return false;
        }
        send(current, Frames.WELCOME, new Packer(64).array(9).integer(version).integer(lastDecided)
                .text(instance).text("root").array(0).integer(maxFrameBytes)
                .integer(maxWaiting).integer(1).integer(100 + lastDecided));
        return true;
    }

    private static String seenOf(Unpacker body) {
        body.text();
        body.array();
        return body.text() + " " + body.integer() + " " + body.text() + " " + body.integer();
    }

    private static boolean waitForEnd(FrameChannel frames) throws IOException {
        frames.read();
        return true;
    }

    private boolean request(SocketChannel client, long number) throws IOException {
        Fate decision = fate.apply(number);
        received.add(number);
        if (decision == Fate.LOSE_BEFORE) {
            return false;
        }
        if (number > lastDecided && decision != Fate.KEEP_SILENT) {
            lastDecided = number;
            synchronized (decided) {
                decided.add(number);
            }
        }
        switch (decision) {
            case LOSE_AFTER -> {
                return false;
            }
            case SEND_GARBAGE -> client.write(ByteBuffer.wrap("HTTP/1.1 400 Bad\r\n".getBytes()));
            case SEND_HALF -> {
                client.write(ByteBuffer.wrap(new byte[] {0, 0, 0, 9, (byte) Frames.DONE, (byte) 0x92}));
                return false;
            }
            case SEND_FATAL -> {
                send(client, Frames.GOODBYE, new Packer(32).array(2).text("Fenced").text("newer"));
                return false;
            }
            case REFUSE -> send(client, Frames.DONE, new Packer(64).array(3).integer(number).array(1)
                    .array(3).integer(number).text("InvalidRequest").text("no such queue")
                    .integer(100 + number));
            case ANSWER -> send(client, Frames.DONE,
                    new Packer(16).array(3).integer(number).array(0).integer(100 + number));
            default -> {
                // Silent.
            }
        }
        return true;
    }

    private static void send(SocketChannel client, int type, Packer body) throws IOException {
        client.write(ByteBuffer.wrap(Frames.frame(type, body.toBytes())));
    }

    List<Long> decided() {
        synchronized (decided) {
            return List.copyOf(decided);
        }
    }

    @Override
    public void close() throws IOException {
        listening.close();
        if (current != null) {
            current.close();
        }
    }
}
