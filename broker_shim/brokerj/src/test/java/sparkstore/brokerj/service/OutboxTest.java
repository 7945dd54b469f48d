package sparkstore.brokerj.service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import sparkstore.brokerj.wire.Frames;

/** Whoever adds a request is told whether it comes in a burst. */
class OutboxTest {
    private static final byte[] NOTHING = new byte[0];

    private final Outbox outbox = new Outbox();
    private boolean isQuiet;

    private void add(int count) {
        for (int n = 0; n < count; n++) {
            isQuiet = outbox.add(new Request(Frames.DO, 1, 0, () -> NOTHING, null), 1);
        }
    }

    @Test
    void onlyWhatComesWhileFewAreUnansweredIsSentByWhoeverAddedIt() {
        outbox.welcomed(new Welcome(0, "run", "root", List.of(), 1_000, 100, 1, 0), false);
        add(8);
        assertTrue(isQuiet);
        add(1);
        assertFalse(isQuiet);
        assertEquals(2, outbox.answered(2, List.of()).size());
        add(1);
        assertTrue(isQuiet);
    }
}
