package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.List;
import org.apache.qpid.server.store.MessageEnqueueRecord;

/**
 * Where a message is kept besides memory, as far as that is known to be durable.
 *
 * <p>Its monitor is never held while waiting. That is why it is not the message's own, which is held
 * while content is read back: the thread that reads from the service tells here what was decided,
 * and content comes by the same thread.
 */
final class Keeping {
    /** Where the content is. */
    enum Kept {
        /** Nowhere: the next enqueue brings header and body. */
        NOWHERE,
        /** With the service, on no queue or in an XA branch: an enqueue brings the header. */
        STAGED,
        /** With the service since before this start, on a queue unless it was left over. */
        RECOVERED,
        /** On a queue: the next enqueue names it. */
        ENQUEUED
    }

    private Kept kept;
    private int inFlight;
    private List<EntryRecord> entries = List.of();

    Keeping(Kept kept) {
        this.kept = kept;
    }

    synchronized Kept now() {
        return kept;
    }

    /** It is durable in another place; being on a queue outlasts the others. */
    synchronized void keep(Kept now) {
        if (now == Kept.ENQUEUED || kept == Kept.NOWHERE) {
            kept = now;
        }
    }

    /** The service has it no longer: its XA branch was rolled back. */
    synchronized void lost() {
        kept = Kept.NOWHERE;
    }

    /** A transaction with it was sent. */
    synchronized void sent() {
        inFlight++;
    }

    /** That transaction was decided, and the service keeps it so; null if that is not known. */
    synchronized void decided(Kept now) {
        inFlight--;
        if (now != null) {
            keep(now);
        }
    }

    /** It is on a queue. */
    synchronized void entered(EntryRecord entry) {
        if (!entries.contains(entry)) {
            List<EntryRecord> more = new ArrayList<>(entries);
            more.add(entry);
            entries = List.copyOf(more);  // of one, nearly always: as little memory as can be
        }
    }

    /** It is on that queue no longer. */
    synchronized void left(MessageEnqueueRecord entry) {
        entries = entries.stream().filter(each -> !each.isSame(entry)).toList();
    }

    /** On which queues it is. */
    synchronized List<EntryRecord> entries() {
        return entries;
    }

    /** Is the transaction under way that makes it durable for the first time? */
    synchronized boolean isFirstInFlight() {
        return kept == Kept.NOWHERE && inFlight > 0;
    }
}
