"""Hold the lease of a store at its witness, by one object that says which root may serve.

    the object: who serves, for how long, and the number of its newest renewal

A store whose root has a witness serves under a lease: it replaces the object, if unchanged, every
third of the lease, and tells nobody that anything is complete unless the lease is running. A
promotion replaces the object, too, and then waits until the lease that it found has run out.

Why the old primary tells nothing after the new one may begin, whoever is cut off from whom: a
renewal counts from before its request was sent. The promotion's replacement succeeds only over the
newest renewal that did, so each renewal that counts was sent before it. Its lease has run out
when the promotion has waited so long, plus a margin for clocks that do not run alike. Each later
renewal fails by the tag. No two clocks are compared. The clock goes on while the machine is
suspended (`CLOCK_BOOTTIME`); that of a virtual machine that was frozen from outside may not.

What the log does (`sparkstore.log.writer`): after a group is on disk, and before any of its
completions is called, it looks whether the lease runs, and waits while it does not. So a store that
was stopped in between finds out when it goes on. What remains is a completion that was being told
at that moment: it is told late, as if it had been told before, and is on the old root's disk.

Why a bucket that does not answer loses nothing: the store pushes back, and goes on when a renewal
succeeds; it is the primary until somebody replaces the object. Why a kill between any two steps is
harmless: a promotion that was killed has waited for nothing and changed no role; made again, it
finds itself in the object, waits the whole lease, and goes on.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

from sparkstore.errors import Fenced, InvalidRequest, Locked, StoreError, Unavailable
from sparkstore.storage.storage import StoredContent
from sparkstore.tables.root import Identity
from sparkstore.witness.holder import Holder, packed, unpacked
from sparkstore.witness.place import LOST, WitnessPlace
from sparkstore.witness.turn import TRIES, close

_log = logging.getLogger(__name__)

_RENEWALS = 3
"""Renewals in the time of a lease: two may fail before the store pushes back."""


def boottime_s() -> float:
    """Seconds on a clock that only goes on, also while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Witness:
    """The lease of one store that serves; `claim` first, `start`, and `serve`."""

    def __init__(
        self,
        place: WitnessPlace,
        root: Identity,
        where: str,
        lease_s: float,
        clock: Callable[[], float] = boottime_s,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Prepare the lease at a witness; nothing is asked yet.

        Args:
            place: Where the object is (`witness_at`).
            root: The identity of the root that the store serves.
            where: Its folder, to tell people.
            lease_s: How long the store goes on when the witness does not answer.
            clock: Seconds that only go on, on whatever scale.
            wait: Waits for so many seconds.
        """
        self._place, self._clock, self._wait = place, clock, wait
        here = f"{socket.gethostname()}:{where}"
        self._own = Holder(root.root_id, root.generation, uuid4().hex, lease_s, where=here)
        self._tag = ""
        self._held_until = float("-inf")
        self._changed = threading.Condition()
        self._renewing = threading.RLock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._end: Callable[[], int] = lambda: 0
        self._on_fenced: Callable[[StoreError], None] | None = None
        self._fenced: Fenced | None = None

    @property
    def location(self) -> str:
        """Return the location of the witness."""
        return self._place.location

    @property
    def left_s(self) -> float:
        """Return the seconds that the lease runs without another renewal; 0: it has run out."""
        return max(0.0, self._held_until - self._clock())

    @property
    def holder(self) -> Holder:
        """Return what the witness says of this store, as last known; asks nobody."""
        return self._own

    @property
    def names_successor(self) -> bool:
        """Tell whether a standby may take over from this store, as last known; asks nobody."""
        own = self._own
        return bool(own.in_step) and not own.is_paused

    def claim(self, *, is_new: bool, accept_loss: bool = False) -> None:
        """Take the lease; waits out that of a copy of this root in another place.

        A standby that the object names stays named until `serve`. Why nothing is lost by that: the
        lock of the root says that whoever confirmed anything before has ended, and nothing is
        confirmed before `serve`. So that standby has all that was confirmed: if this process dies
        in its recovery, for good, it takes over.

        The lock of the root keeps two processes of one folder apart, and none of its copies. A copy
        that renews its lease meanwhile serves: it is left alone. One that comes later fails.

        Args:
            is_new: The root had no witness so far. Of one that had, the object must be there: a
                folder that is not mounted would look empty.
            accept_loss: Whatever the root had confirmed, `check_whole` is to let it pass.

        Raises:
            Fenced: A replica was promoted.
            InvalidRequest: The witness is another root's, or it lost its object.
            Locked: A copy of this root is served elsewhere.
            StoreError: The witness did not answer.
        """
        for _ in range(TRIES):
            stored = self._place.read()
            began = self._clock()
            if stored is None:
                if not is_new:
                    raise InvalidRequest(LOST.format(self.location))
                if self._place.put_if_absent(packed(self._own)):
                    self._took(began)
                    return
                continue
            standing = self._checked(unpacked(self._place.location, stored.content))
            if not (standing.is_closed or standing.where == self._own.where):
                self._wait_for_copy(standing, stored.tag)
            kept = (0, "") if accept_loss else (standing.position, standing.in_step)
            own = replace(self._next(standing), position=kept[0], in_step=kept[1])
            if self._place.replace_if_unchanged(packed(own), stored.tag):
                self._own = own
                self.renew()
                return
        message = f"{self.location}: others change it all the time: see who uses this witness"
        raise Unavailable(message)

    def renew(self) -> None:
        """Make the lease run anew, from now on.

        Raises:
            Fenced: Somebody else took it.
            StoreError: The witness did not answer; the lease runs as long as it did. Or `stop` was
                called.
        """
        with self._renewing:
            for _ in range(TRIES):
                if self._stopping.is_set():
                    raise Unavailable(f"{self.location}: the lease was released")
                # Before the request: the lease runs from when it was asked for.
                began = self._clock()
                stored, standing = self._read()
                end = max(self._own.position, self._end())
                own = replace(self._next(standing), position=end)
                if self._place.replace_if_unchanged(packed(own), stored.tag):
                    self._own = own
                    self._took(began)
                    return
        message = f"{self.location}: the object changes all the time; see who else uses it"
        raise Unavailable(message)

    def name_in_step(self, standby: str) -> None:
        """Let the object say which standby is in step, from when this returns at the latest.

        Raises:
            Fenced: Somebody else took it.
            StoreError: The witness did not answer; the object may say it or not.
        """
        with self._renewing:
            self._own = replace(self._own, in_step=standby)
            self.renew()

    def check_whole(self, last_position: int) -> None:
        """Refuse a root that ends before what it has confirmed: one put back from a copy.

        The standby that the object names (`claim`) has what this root lacks, and takes over.

        Args:
            last_position: The last position of the root, after its logs were replayed.

        Raises:
            InvalidRequest: It is such a root.
        """
        confirmed = self._own.position
        if last_position >= confirmed:
            return
        message = f"this root ends at position {last_position}, and had confirmed {confirmed}: it"
        message += " was put back from a copy. Serve the other machine, or say --accept-loss"
        raise InvalidRequest(message)

    def start(self) -> None:
        """Renew from now on, on a thread: a recovery may take longer than a lease."""
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._thread.start()

    def serve(self, on_fenced: Callable[[StoreError], None], end: Callable[[], int]) -> None:
        """Go on for a log that is open: from now on it may confirm what no standby has.

        Waits for a witness that is away for a while: a recovery may have taken long, and as nothing
        is confirmed before, nothing is lost.

        Args:
            on_fenced: Called on the thread that renews, at most once.
            end: Gives the last position that is confirmed, or may be.

        Raises:
            Fenced: Somebody else took the lease while the log was opened.
            StoreError: The witness, which names a standby, cannot be read. Or `stop` was called.
        """
        is_named = bool(self._own.in_step)
        while is_named:
            try:
                self.name_in_step("")
                is_named = False
            except (Unavailable, OSError):  # the thread that renews says so
                if self._stopping.wait(self._own.lease_s / _RENEWALS):
                    raise
        with self._changed:
            if self._fenced is not None:
                raise self._fenced
            self._on_fenced, self._end = on_fenced, end

    def wait_until_held(self, timeout_s: float) -> bool:
        """Wait for the lease to run, but no longer than this; True if it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self.left_s > 0, timeout_s)

    def stop(self, why: str = "") -> None:
        """Renew no more; say that this store tells nothing any more. May be called twice.

        Args:
            why: A person wants it, to tell people.
        """
        if self._stopping.is_set():  # a standby may be about to replace the very object
            return
        self._stopping.set()
        waits_s = self._own.lease_s  # a request may hang
        if self._thread is not None:
            self._thread.join(waits_s)
        is_alone = self._renewing.acquire(timeout=waits_s)  # else one may undo what is said next
        self._held_until = float("-inf")
        close(self._place, self._own, why)
        if is_alone:
            self._renewing.release()

    def _run(self) -> None:
        is_silent = False
        while not self._stopping.wait(self._own.lease_s / _RENEWALS):
            try:
                self.renew()
            except Fenced as reason:
                with self._changed:
                    self._fenced, on_fenced = reason, self._on_fenced
                if on_fenced is not None:
                    on_fenced(reason)
                return
            except (StoreError, OSError) as reason:
                if not is_silent:
                    _log.warning("the witness does not answer: %s", reason)
                is_silent = True
            else:
                if is_silent:
                    _log.warning("the witness answers again")
                is_silent = False

    def _wait_for_copy(self, standing: Holder, tag: str) -> None:
        """Wait out a lease that was seen now; nobody tells anything under it if it is unchanged.

        Raises:
            Locked: It was renewed meanwhile.
        """
        _log.warning("%s served until now: waiting for its lease", standing.where)
        self._wait(standing.over_after_s)
        stored = self._place.read()
        if stored is None or stored.tag == tag:
            return
        now = unpacked(self.location, stored.content)
        if now.writer == standing.writer and not now.is_closed:
            message = f"a copy of this root is served as {now.where}: stop that one, or give this"
            raise Locked(f"{message} folder up")

    def _read(self) -> tuple[StoredContent, Holder]:
        """Read the witness's object, which must still be this store's.

        Raises:
            Fenced: It is not.
            Unavailable: It is not there, as in a folder that is not mounted. Nobody can take over
                by one that is gone: so the store pushes back until it is there again.
        """
        stored = self._place.read()
        if stored is None:
            message = (
                f"{self.location}: the object is gone; nobody knows whether this store may serve"
            )
            raise Unavailable(f"{message}: mount the folder, or restore the object")
        standing = unpacked(self.location, stored.content)
        if standing.writer != self._own.writer:
            raise Fenced(self._who_took_over(standing))
        return stored, standing

    def _next(self, standing: Holder) -> Holder:
        return replace(
            self._own,
            renewal=standing.renewal + 1,
            is_paused=standing.is_paused,  # a person resumes it
            switched_us=standing.switched_us,
            switched_why=standing.switched_why,
        )

    def _took(self, began: float) -> None:
        with self._changed:
            self._held_until = began + self._own.lease_s
            self._changed.notify_all()

    def _checked(self, standing: Holder) -> Holder:
        # A start that was killed had named a root here that it did not come to make.
        is_new = standing.generation == 1 and not (standing.position or standing.in_step)
        is_unmade = is_new and standing.where == self._own.where
        if is_unmade or standing.root_id == self._own.root_id:
            return standing
        if standing.generation > self._own.generation:
            raise Fenced(self._who_took_over(standing))
        message = f"{self.location} is the witness of {standing.where}: name another prefix, or"
        message += " remove its object if that root is gone"
        raise InvalidRequest(message)

    def _who_took_over(self, standing: Holder) -> str:
        if standing.root_id == self._own.root_id:
            return f"{self.location}: another store of this root serves now, on {standing.where}"
        return f"{self.location}: {standing.where} took over, with generation {standing.generation}"
