package sparkstore.brokerj.store;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import sparkstore.brokerj.service.Failures;
import sparkstore.brokerj.service.Recovery;
import sparkstore.brokerj.service.Refused;
import sparkstore.brokerj.service.StoreClient;
import sparkstore.brokerj.service.Withdrawn;

/**
 * The XA branches that the store keeps as branches of its own, prepared and not decided, by the key
 * of their xid: what the start found, and what was prepared and decided since. Any thread.
 *
 * <p>One that uses a queue which the broker did not make is not the broker's to decide, and is not
 * told to it.
 */
final class BranchesInDoubt {
    private static final Logger LOGGER = LoggerFactory.getLogger(BranchesInDoubt.class);

    private final StoreClient client;
    private final Map<String, PreparedBranch> branches = new LinkedHashMap<>();
    private final Set<String> others = new LinkedHashSet<>();
    /** Decisions of which nobody knows whether the service took them: was it a commit? */
    private final Map<String, Boolean> tried = new HashMap<>();

    BranchesInDoubt(StoreClient client) {
        this.client = client;
    }

    /** Take over what the start found; a branch comes in one part or several. */
    synchronized void recovered(List<Recovery.Branch> parts, QueueNames queues) {
        for (Recovery.Branch part : parts) {
            String key = StoredXid.key(StoredXid.unpacked(part.xid()));
            PreparedBranch branch = branches.computeIfAbsent(
                    key, any -> new PreparedBranch(new ArrayList<>(), new ArrayList<>()));
            boolean isOurs = add(part.enqueues(), branch.enqueues(), queues)
                    & add(part.dequeues(), branch.dequeues(), queues);
            if (!isOurs) {
                others.add(key);
            }
        }
        for (String key : others) {
            branches.remove(key);
            LOGGER.warn("the branch {} in doubt uses queues that are not the broker's: it is left to"
                    + " sparkstore transactions", key);
        }
    }

    private static boolean add(
            List<Recovery.Place> places, List<EntryRecord> to, QueueNames queues) {
        boolean areKnown = true;
        for (Recovery.Place place : places) {
            UUID queue = queues.idOf(place.queue());
            areKnown &= queue != null;
            to.add(new EntryRecord(queue, place.messageId()));
        }
        return areKnown;
    }

    /** One was prepared, durably. */
    synchronized void prepared(String key, PreparedBranch branch) {
        branches.put(key, branch);
    }

    /** Nobody knows whether it was prepared, and nobody will ask: it shall hold no entries. */
    void doubt(StoredXid xid) {
        try {
            client.rollBackIfPrepared(xid.packed());
        } catch (RuntimeException away) {
            LOGGER.warn("the branch {} may be in doubt after this: {}",
                    StoredXid.key(xid), away.getMessage());
        }
    }

    /** Null if none of this name is here: it was decided, or is a configured object. */
    synchronized PreparedBranch get(String key) {
        return branches.get(key);
    }

    /** A copy, the oldest first. */
    synchronized Map<String, PreparedBranch> all() {
        return new LinkedHashMap<>(branches);
    }

    /**
     * Commit a branch, or roll it back.
     *
     * <p>If nobody knows whether the service took that, the same decision may be asked for again:
     * it is then no error that the branch is not there any more.
     *
     * @return completed when that is durable
     */
    CompletableFuture<Void> decide(String key, boolean isCommit, boolean isUrgent) {
        return client.decide(StoredXid.of(key).packed(), isCommit, isUrgent).handle((done, failure) -> {
            if (failure != null && !isDoneBefore(key, isCommit, failure)) {
                throw new CompletionException(failure);
            }
            ended(key);
            return null;
        });
    }

    private synchronized boolean isDoneBefore(String key, boolean isCommit, Throwable failure) {
        if (failure instanceof Refused) {
            return Boolean.valueOf(isCommit).equals(tried.get(key));
        }
        if (!(failure instanceof Withdrawn)) {
            tried.put(key, isCommit);
        }
        return false;
    }

    private synchronized void ended(String key) {
        branches.remove(key);
        others.remove(key);
        tried.remove(key);
    }

    /** Of every one, the broker's or not; waits. */
    void rollBackAll() {
        List<String> keys = new ArrayList<>(all().keySet());
        synchronized (this) {
            keys.addAll(others);
        }
        keys.forEach(key -> Failures.await(decide(key, false, true)));
    }
}
