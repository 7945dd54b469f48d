package sparkstore.brokerj.service;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * What was given to the service and is not settled yet, in order. Knows no socket.
 *
 * <p>Every method is atomic. Futures are never completed in here but handed back, so that what
 * hangs on them runs outside the lock; the caller of {@link #answered} and {@link #welcomed} is the
 * one reading thread, hence completions are in order.
 */
final class Outbox {
    /** With at most so many unanswered there is no burst, of which a frame of many could be made. */
    private static final int FEW = 8;
    /** Bytes that may be unanswered before senders wait: several of the largest frames. */
    static final long MAX_UNANSWERED_BYTES = 64L << 20;

    private final Map<Long, Request> requests = new LinkedHashMap<>();
    private final Map<Long, Read> reads = new LinkedHashMap<>();
    private final ArrayDeque<Outgoing> unsent = new ArrayDeque<>();
    private int maxWaiting = 1;
    private int maxFrameBytes;
    private int unansweredCount;
    private long unansweredBytes;
    private long lastRequest;
    private long through;
    private long lastRead;
    private RuntimeException failure;

    /** A refusal, as the service lists it. */
    record Refusal(long request, String error, String message) {
    }

    /** A request that was settled, with its failure or null. */
    record Settled(Request request, RuntimeException failure) {
        void tell() {
            if (failure == null) {
                request.decided.complete(null);
            } else {
                request.decided.completeExceptionally(failure);
            }
        }
    }

    /**
     * Give a request its number and its place.
     *
     * @param timeoutNanos how long to wait for room in the window; 0 for ever
     * @return are only a few unanswered, this one among them?
     * @throws RuntimeException no room in time, or the connection ended for good: it has no number
     *     then, and nothing of it will ever happen
     */
    synchronized boolean add(Request request, long timeoutNanos) {
        awaitRoom(timeoutNanos);
        request.number = ++lastRequest;
        request.sinceNanos = System.nanoTime();
        requests.put(request.number, request);
        unansweredCount++;
        unansweredBytes += request.restBytes();
        unsent.add(request);
        return unansweredCount <= FEW;
    }

    private void awaitRoom(long timeoutNanos) {
        long until = System.nanoTime() + timeoutNanos;
        while (failure == null
                && (unansweredCount >= maxWaiting || unansweredBytes >= MAX_UNANSWERED_BYTES)) {
            long left = timeoutNanos == 0 ? TimeUnit.HOURS.toNanos(1) : until - System.nanoTime();
            if (left <= 0) {
                throw Failures.away("the store's service did not answer in time; nothing was done");
            }
            try {
                TimeUnit.NANOSECONDS.timedWait(this, left);
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
                throw Failures.away("interrupted while waiting for the store's service");
            }
        }
        if (failure != null) {
            throw failure;
        }
    }

    synchronized void add(Read read) {
        if (failure != null) {
            throw failure;
        }
        read.number = ++lastRead;
        read.sinceNanos = System.nanoTime();
        reads.put(read.number, read);
        unsent.add(read);
    }

    /**
     * The next frame to send; null if there is none. Requests that wait one after the other and can
     * go in one frame do so.
     */
    synchronized Frame nextUnsent() {
        Outgoing next = pollUnsent();
        if (!(next instanceof Request first && unsent.peek() instanceof Request second
                && RequestRun.isBegunBy(first, second))) {
            return next;
        }
        RequestRun run = new RequestRun(first, maxFrameBytes);
        while (unsent.peek() instanceof Request following && run.take(following)) {
            pollUnsent();
        }
        return run;
    }

    private Outgoing pollUnsent() {
        Outgoing next = unsent.poll();
        if (next != null) {
            next.wasSent = true;
        }
        return next;
    }

    synchronized boolean hasUnsent() {
        return !unsent.isEmpty();
    }

    /** The service said DONE. */
    synchronized List<Settled> answered(long doneThrough, List<Refusal> refusals) {
        List<Settled> settled = settle(doneThrough, refusals);
        notifyAll();
        return settled;
    }

    private List<Settled> settle(long doneThrough, List<Refusal> refusals) {
        Map<Long, Refusal> refused = new LinkedHashMap<>();
        refusals.forEach(refusal -> refused.put(refusal.request(), refusal));
        List<Settled> settled = new ArrayList<>();
        for (long number = through + 1; number <= Math.min(doneThrough, lastRequest); number++) {
            Request request = requests.get(number);
            if (request != null && !request.isAnswered) {
                Refusal refusal = refused.get(number);
                settled.add(new Settled(request, refusal == null ? null
                        : Failures.of(refusal.error(), refusal.message())));
                settle(request);
            }
        }
        through = Math.max(through, doneThrough);
        return settled;
    }

    private void settle(Request request) {
        request.isAnswered = true;
        unansweredCount--;
        unansweredBytes -= request.restBytes();
        Group group = request.group;
        if (group == null) {
            requests.remove(request.number);
        } else if (request == group.last || group.isOver) {
            requests.remove(request.number);
            leave(group);
        } else {
            group.answered.add(request);
        }
    }

    private void leave(Group group) {
        group.isOver = true;
        group.answered.forEach(part -> requests.remove(part.number));
        group.answered.clear();
    }

    /** A group's last request will never come: what was kept for it may go. */
    synchronized void abandon(Group group) {
        leave(group);
    }

    /**
     * A connection was made: settle what the service had decided, send the rest again.
     *
     * <p>What it had not decided and nobody waits for any more is withdrawn: who was told "outcome
     * unknown" shall not be surprised by it later. That is safe, because the service takes nothing
     * from an older connection of a member once it has greeted the new one.
     *
     * @param said by which the service says what it had decided, and what it takes at once
     * @param isSameRun the service is the process that answered before, so that it remembers the
     *     first parts of unfinished groups
     */
    synchronized List<Settled> welcomed(Welcome said, boolean isSameRun) {
        maxWaiting = said.maxWaitingRequests();
        maxFrameBytes = said.maxFrameBytes();
        List<Settled> settled = settle(said.lastRequest(), said.refusals());
        lastRequest = Math.max(lastRequest, said.lastRequest());
        unsent.clear();
        for (Request request : requests.values()) {
            if (!request.isAnswered && request.decided.isDone()) {
                unansweredBytes -= request.withdraw();
            }
            if (!request.isAnswered || !isSameRun) {
                unsent.add(request);
            }
        }
        unsent.addAll(reads.values());
        reads.values().forEach(read -> read.answer.restart());
        long now = System.nanoTime();
        unsent.forEach(frame -> frame.sinceNanos = now);
        notifyAll();
        return settled;
    }

    /** The read that an answer is for; null if nobody asked. It is forgotten with the last one. */
    synchronized Read read(long number, boolean isLast) {
        return isLast ? reads.remove(number) : reads.get(number);
    }

    /** Since when (System.nanoTime) the oldest unanswered frame waits; null if none does. */
    synchronized Long oldestNanos() {
        Long oldest = null;
        for (Request request : requests.values()) {
            if (!request.isAnswered) {
                oldest = request.sinceNanos;
                break;
            }
        }
        for (Read read : reads.values()) {
            return oldest == null || read.sinceNanos - oldest < 0 ? read.sinceNanos : oldest;
        }
        return oldest;
    }

    /**
     * Requests and reads that wait since before a time and whose callers shall wait no more. Of what
     * was sent once the outcome is unknown until the next connection; it keeps its place. What was
     * never sent is withdrawn at once.
     */
    synchronized List<Outgoing> waitingSince(long beforeNanos) {
        List<Outgoing> found = new ArrayList<>();
        for (Request request : requests.values()) {
            if (!request.isAnswered && !request.decided.isDone()
                    && request.sinceNanos - beforeNanos < 0) {
                if (!request.wasSent) {
                    unansweredBytes -= request.withdraw();
                }
                found.add(request);
            }
        }
        for (Iterator<Read> all = reads.values().iterator(); all.hasNext();) {
            Read read = all.next();
            if (read.sinceNanos - beforeNanos < 0) {
                found.add(read);
                all.remove();
            }
        }
        return found;
    }

    /** No service any more: nothing is taken from now on. Returns what was left. */
    synchronized List<Outgoing> fail(RuntimeException reason) {
        failure = reason;
        List<Outgoing> left = new ArrayList<>();
        for (Request request : requests.values()) {
            if (!request.isAnswered) {
                left.add(request);
            }
        }
        left.addAll(reads.values());
        requests.clear();
        reads.clear();
        unsent.clear();
        notifyAll();
        return left;
    }

    synchronized boolean isIdle() {
        return unansweredCount == 0;
    }
}
