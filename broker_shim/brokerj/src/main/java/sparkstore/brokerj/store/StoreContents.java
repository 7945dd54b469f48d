package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Predicate;
import sparkstore.brokerj.service.Recovery;

/**
 * One walk through what is in the store, in the order in which it comes: wiring, configured objects
 * and branches in doubt at once, then messages, then entries.
 *
 * <p>A connection that is lost on the way begins the walk again; message ids rise, so those that
 * were handed out already are passed over. One thread at a time.
 */
final class StoreContents {
    private final Recovery recovery;
    private final List<Recovery.Wiring> wiring = new ArrayList<>();
    private final List<Recovery.Configured> configured = new ArrayList<>();
    private final List<Recovery.Branch> branches = new ArrayList<>();
    private final Map<String, long[]> entries = new TreeMap<>();
    private Recovery.Section next;
    private long lastMessageId = -1;
    private boolean isPastMessages;

    StoreContents(Recovery recovery) {
        this.recovery = recovery;
        for (next = recovery.next(); isDefinition(); next = recovery.next()) {
            if (next instanceof Recovery.Wiring row) {
                wiring.add(row);
            } else if (next instanceof Recovery.Configured row) {
                configured.add(row);
            } else if (next instanceof Recovery.Branch row) {
                branches.add(row);
            } else {
                wiring.clear();
                configured.clear();
                branches.clear();
            }
        }
    }

    private boolean isDefinition() {
        return next instanceof Recovery.Wiring || next instanceof Recovery.Configured
                || next instanceof Recovery.Branch || next instanceof Recovery.Again;
    }

    List<Recovery.Wiring> wiring() {
        return wiring;
    }

    List<Recovery.Configured> configured() {
        return configured;
    }

    List<Recovery.Branch> branches() {
        return branches;
    }

    /** Were messages handed out, or passed over because the entries were asked for? */
    boolean isPastMessages() {
        return isPastMessages;
    }

    /** Hand out every message once, ids rising, until {@code wants} returns false. */
    void messages(Predicate<RecoveredMessage> wants) {
        isPastMessages = true;
        boolean isWanted = true;
        while (isWanted && !(next instanceof Recovery.Entries) && !(next instanceof Recovery.End)) {
            if (next instanceof Recovery.Messages columns) {
                isWanted = hand(columns, wants);
            }
            next = recovery.next();
        }
    }

    private boolean hand(Recovery.Messages columns, Predicate<RecoveredMessage> wants) {
        for (int n = 0; n < columns.ids().length; n++) {
            if (columns.ids()[n] > lastMessageId) {
                lastMessageId = columns.ids()[n];
                RecoveredMessage message = new RecoveredMessage(
                        columns.ids()[n], columns.headers()[n], columns.bodyBytes()[n]);
                if (!wants.test(message)) {
                    return false;
                }
            }
        }
        return true;
    }

    /** Message ids, rising, by name of the queue; walks to the end. */
    Map<String, long[]> entries() {
        isPastMessages = true;
        while (!(next instanceof Recovery.End)) {
            if (next instanceof Recovery.Entries queue) {
                entries.merge(queue.queue(), queue.messageIds(), StoreContents::joined);
            } else if (next instanceof Recovery.Again) {
                entries.clear();
            }
            next = recovery.next();
        }
        return entries;
    }

    private static long[] joined(long[] first, long[] second) {
        long[] both = java.util.Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, both, first.length, second.length);
        return both;
    }

    /** A message as the store has it; {@code header} is null if it was not the plugin that wrote it. */
    record RecoveredMessage(long messageId, byte[] header, long bodyBytes) {
    }
}
