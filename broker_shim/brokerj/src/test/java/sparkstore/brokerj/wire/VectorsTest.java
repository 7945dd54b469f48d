package sparkstore.brokerj.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** The same bytes as Python's: vectors.properties is written by tests/unit/broker_shim/brokerj/test_vectors.py. */
class VectorsTest {
    private static final HexFormat HEX = HexFormat.of();

    private static String vector(String name) throws IOException {
        Properties vectors = new Properties();
        try (InputStream from = VectorsTest.class.getResourceAsStream("/vectors.properties")) {
            vectors.load(from);
        }
        return vectors.getProperty(name);
    }

    /** Check what is packed, and read it back. */
    private static Unpacker packs(String name, Consumer<Packer> pack) throws Exception {
        Packer packer = new Packer(1);
        pack.accept(packer);
        byte[] packed = packer.toBytes();
        assertEquals(vector(name), packed.length < 500 ? HEX.formatHex(packed) : "sha256:"
                + HEX.formatHex(MessageDigest.getInstance("SHA-256").digest(packed)), name);
        return new Unpacker(ByteBuffer.wrap(packed));
    }

    private static final long[] INTEGERS = {
        0, 1, 127, 128, 255, 256, 65535, 65536, 4294967295L, 4294967296L, Long.MAX_VALUE,
        -1, -32, -33, -128, -129, -32768, -32769, -2147483648L, -2147483649L, Long.MIN_VALUE};

    @Test
    void integersOfEveryWidth() throws Exception {
        Unpacker unpacker = packs("integers", packer -> {
            packer.array(INTEGERS.length);
            Arrays.stream(INTEGERS).forEach(packer::integer);
        });
        assertEquals(INTEGERS.length, unpacker.array());
        for (long expected : INTEGERS) {
            assertEquals(expected, unpacker.integer());
        }
    }

    @Test
    void textsOfEveryWidth() throws Exception {
        String[] texts = {"", "a", "x".repeat(31), "x".repeat(32), "x".repeat(255), "x".repeat(256),
            "x".repeat(65535), "x".repeat(65536), "Grüße, 日本 \uD83D\uDE00"};
        Unpacker unpacker = packs("texts", packer -> {
            packer.array(texts.length);
            Arrays.stream(texts).forEach(packer::text);
        });
        unpacker.array();
        for (String expected : texts) {
            assertEquals(expected, unpacker.text());
        }
    }

    @Test
    void bytesOfEveryWidthNilAndBooleans() throws Exception {
        int[] sizes = {0, 1, 255, 256, 65535, 65536};
        Unpacker unpacker = packs("others", packer -> {
            packer.array(sizes.length + 3).nil().bool(true).bool(false);
            Arrays.stream(sizes).forEach(size -> packer.binary(new byte[size]));
        });
        unpacker.array();
        assertNull(unpacker.text());
        assertEquals(true, unpacker.bool());
        assertEquals(false, unpacker.bool());
        for (int size : sizes) {
            assertArrayEquals(new byte[size], unpacker.binary());
        }
    }

    @Test
    void arraysOfEveryWidth() throws Exception {
        for (int count : new int[] {0, 15, 16, 65535, 65536}) {
            Unpacker unpacker = packs("array" + count, packer -> {
                packer.array(count);
                for (int n = 0; n < count; n++) {
                    packer.nil();
                }
            });
            assertEquals(count, unpacker.array());
        }
    }

    @Test
    void recordsAsTheCodecPacksThem() throws Exception {
        byte[] header = new Packer(1).array(20).nil().nil().bool(true).integer(4).nil().nil().nil()
                .nil().nil().nil().nil().nil().nil().nil().nil().nil().nil().integer(3).integer(5)
                .array(0).toBytes();
        byte[] body = {1, 2, 3, 4, 5};
        packs("created", packer -> Records.created(packer, "q", "{}"));
        packs("destroyed", packer -> Records.destroyed(packer, "q"));
        packs("enqueued", packer -> Records.enqueued(packer, "q", 7, header, body));
        packs("enqueued_staged", packer -> Records.enqueued(packer, "q", 7, header, null));
        packs("dequeued", packer -> Records.dequeued(packer, "q", 7));
        packs("content", packer -> Records.content(packer, 7, null, 2, body, 3));
        packs("content_with_header", packer -> Records.content(packer, 7, header, 0, body, 5));
        packs("configured", packer -> Records.configured(packer, "link", "k", "{}"));
        packs("unconfigured", packer -> Records.unconfigured(packer, "link", "k"));
    }

    @Test
    void manyRequestsInOneFrameAsTheServiceReadsThem() throws Exception {
        byte[] header = new Packer(1).array(1).nil().toBytes();
        packs("each_enqueued", packer -> {
            each(packer, new RecordBatch().enqueued("q", 7, header, new byte[] {1, 2}),
                    new RecordBatch().enqueued("q", 300, header, null));
        });
        packs("each_dequeued", packer -> {
            each(packer, new RecordBatch().dequeued("q", 7), new RecordBatch().dequeued("q", 300));
        });
    }

    private static void each(Packer to, RecordBatch... batches) {
        List<SingleEntry> all = Arrays.stream(batches)
                .map(batch -> batch.single(batch.toArray())).toList();
        byte[] head = SingleEntry.headOfEach(all);
        to.array(4).integer(1).append(head, 0, head.length);
        for (SingleEntry entry : all) {
            if (entry.hasContent()) {
                to.append(SingleEntry.CONTENT_HEAD, 0, SingleEntry.CONTENT_HEAD.length);
            }
            to.append(entry.packed(), entry.contentFrom(), entry.contentBytes());
        }
    }

    @Test
    void onlyOneEntryByItselfCanBeSaidWithOthers() {
        byte[] nothing = {(byte) 0xc0};
        RecordBatch two = new RecordBatch().dequeued("q", 1).dequeued("q", 2);
        assertNull(two.single(two.toArray()));
        RecordBatch object = new RecordBatch().dequeued("q", 1).configured("c", "k", "{}");
        assertNull(object.single(object.toArray()));
        RecordBatch content = new RecordBatch().content(1, nothing, nothing);
        assertNull(content.single(content.toArray()));
        RecordBatch created = new RecordBatch().created("q", "{}");
        assertNull(created.single(created.toArray()));
    }

    @Test
    void aLengthLongerThanTheFrameIsRefusedBeforeAnythingIsAllocated() {
        byte[] liar = HEX.parseHex("c67fffffff00");
        assertThrows(ProtocolException.class, () -> new Unpacker(ByteBuffer.wrap(liar)).binary());
        byte[] array = HEX.parseHex("dd7fffffff00");
        assertThrows(ProtocolException.class, () -> new Unpacker(ByteBuffer.wrap(array)).array());
    }

    @Test
    void aFrameThatEndsWithinAValueIsRefusedWhereverItEnds() throws Exception {
        byte[] whole = HEX.parseHex(vector("enqueued"));
        for (int length = 0; length < whole.length; length++) {
            Unpacker cut = new Unpacker(ByteBuffer.wrap(whole, 0, length));
            assertThrows(ProtocolException.class, cut::skip, "cut at " + length);
        }
        Unpacker all = new Unpacker(ByteBuffer.wrap(whole));
        all.skip();
        assertThrows(ProtocolException.class, all::skip);
    }

    @Test
    void aBatchIsCutBetweenRecords() {
        RecordBatch batch = new RecordBatch();
        for (int n = 1; n <= 100; n++) {
            batch.dequeued("queue", n);
        }
        int end = batch.fitting(0, batch.size() / 3, 1000);
        byte[] first = batch.entries(0, end);
        byte[] rest = batch.entries(end, 100);
        assertEquals(batch.size() + 2 * 3, first.length + rest.length);
        Unpacker unpacker = new Unpacker(ByteBuffer.wrap(rest));
        assertEquals(100 - end, unpacker.array());
        assertEquals(40, batch.fitting(0, Integer.MAX_VALUE, 40));
    }
}
