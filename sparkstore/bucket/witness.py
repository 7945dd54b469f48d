"""A witness: one object elsewhere that says which of a root and its replicas may serve.

    <witness>/primary.json    who serves, for how long, and the number of its newest renewal

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

import json
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from uuid import uuid4

from sparkstore.errors import CorruptData, Fenced, InvalidRequest, StoreError, Unavailable
from sparkstore.storage.local import LocalStorage
from sparkstore.storage.objects import ObjectStorage, is_object_uri
from sparkstore.storage.probe import check_is_conditional
from sparkstore.storage.storage import Storage, StoredContent
from sparkstore.tables.root import Identity

_log = logging.getLogger(__name__)

_NAME = "primary.json"
_RENEWALS = 3
"""Renewals in the time of a lease: two may fail before the store pushes back."""
_CLOCKS_DIFFER = 1.05
_TRIES = 10

NO_WITNESS = "none"
"""As the setting: the root has no witness any more."""
_LOST = (
    f"{{}} is the witness of this root, and has no {_NAME}: if it is the right place, see that no"
    f' replica serves, and start once with witness = "{NO_WITNESS}"'
)


def boottime_s() -> float:
    """Seconds on a clock that only goes on, also while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Holder:
    """The content of the witness's object: the root that may serve, and its lease.

    Attributes:
        root_id: The root that may serve.
        generation: The number of that root that a promotion raises.
        writer: UUID drawn by the process that wrote this.
        lease_s: How long the process may tell completions after it began this renewal.
        renewal: Counts the renewals, so that no two of these are alike.
        where: Machine and folder, to tell people.
        is_closed: Nobody tells anything under it, nor under one before it.
        in_step: The root of the standby whose log has all that was told; empty: nobody's.
        is_paused: A person wants no standby to take over.
        position: The root had confirmed up to here, or could have; 0: nobody says.
    """

    root_id: str
    generation: int
    writer: str
    lease_s: float
    renewal: int = 0
    where: str = ""
    is_closed: bool = False
    in_step: str = ""
    is_paused: bool = False
    position: int = 0


def witness_at(where: str, patience_s: float = 60.0) -> Storage:
    """Open the place of a witness: a prefix of a bucket, or a folder that all machines have.

    Raises:
        InvalidRequest: No such place, or its store does not decide conditional puts.
        StoreError: It did not answer.
    """
    if not is_object_uri(where):
        path = Path(where.removeprefix("file://"))
        if not (path.is_absolute() and path.is_dir()):
            message = f"witness is {where!r}, which is no folder: mount or create it, or say"
            raise InvalidRequest(f"{message} s3://BUCKET/PREFIX")
        return LocalStorage(path)
    storage = ObjectStorage(where, patience_s=patience_s)
    check_is_conditional(storage)
    return storage


class Witness:
    """The lease of one store that serves; `claim` first, then `start`."""

    def __init__(
        self,
        storage: Storage,
        root: Identity,
        where: str,
        lease_s: float,
        clock: Callable[[], float] = boottime_s,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Prepare the lease at a witness; nothing is asked yet.

        Args:
            storage: Where the object is (`witness_at`).
            root: The identity of the root that the store serves.
            where: Its folder, to tell people.
            lease_s: How long the store goes on when the witness does not answer.
            clock: Seconds that only go on, on whatever scale.
            wait: Waits for so many seconds.
        """
        self._storage, self._clock, self._wait = storage, clock, wait
        place = f"{socket.gethostname()}:{where}"
        self._own = Holder(root.root_id, root.generation, uuid4().hex, lease_s, where=place)
        self._tag = ""
        self._held_until = float("-inf")
        self._changed = threading.Condition()
        self._renewing = threading.RLock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._before: Holder | None = None
        self._end: Callable[[], int] = lambda: 0

    @property
    def location(self) -> str:
        """Return the location of the witness."""
        return self._storage.location

    @property
    def left_s(self) -> float:
        """Return the seconds that the lease runs without another renewal; 0: it has run out."""
        return max(0.0, self._held_until - self._clock())

    def claim(self, *, is_new: bool, accept_loss: bool = False) -> None:
        """Take the lease; waits out that of another machine on which a copy of this root serves.

        Args:
            is_new: The root had no witness so far. Of one that had, the object must be there: a
                folder that is not mounted would look empty.
            accept_loss: Whatever the root had confirmed, `check_whole` is to let it pass.

        Raises:
            Fenced: A replica was promoted.
            InvalidRequest: The witness is another root's, or it lost its object.
            StoreError: The witness did not answer.
        """
        for _ in range(_TRIES):
            stored = self._storage.read(_NAME)
            began = self._clock()
            if stored is None:
                if not is_new:
                    raise InvalidRequest(_LOST.format(self.location))
                if self._storage.put_if_absent(_NAME, _packed(self._own)):
                    self._took(began)
                    return
                continue
            standing = self._checked(_unpacked(self._storage.location, stored.content))
            own = replace(self._next(standing), position=0 if accept_loss else standing.position)
            if self._storage.replace_if_unchanged(_NAME, _packed(own), stored.tag):
                self._own, self._before = own, standing
                if not (standing.is_closed or _machine(standing) == _machine(own)):
                    # A copy of this root may be served there: its lock is no lock of ours.
                    _log.warning("%s served until now: waiting for its lease", standing.where)
                    self._wait(standing.lease_s * _CLOCKS_DIFFER)
                self.renew()
                return
        message = f"{self.location}: others change it all the time: see who uses this witness"
        raise Unavailable(message)

    def renew(self) -> None:
        """Make the lease run anew, from now on.

        Raises:
            Fenced: Somebody else took it.
            StoreError: The witness did not answer; the lease runs as long as it did.
        """
        with self._renewing:
            for _ in range(_TRIES):
                # Before the request: the lease runs from when it was asked for.
                began = self._clock()
                stored, standing = self._read()
                end = max(self._own.position, self._end())
                own = replace(self._next(standing), position=end)
                if self._storage.replace_if_unchanged(_NAME, _packed(own), stored.tag):
                    self._own = own
                    self._took(began)
                    return
        message = f"{self.location}: {_NAME} changes all the time; look who else uses it"
        raise Fenced(message)

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

        Why nothing is lost by that: nothing was confirmed since `claim`, so the standby that the
        object named before is named again. It has what this root lacks, and takes over.

        Args:
            last_position: The last position of the root, after its logs were replayed.

        Raises:
            InvalidRequest: It is such a root.
            StoreError: The witness did not answer.
        """
        confirmed, before = self._own.position, self._before
        if before is None or last_position >= confirmed:
            return
        self.name_in_step(before.in_step)
        message = f"this root ends at position {last_position}, and had confirmed {confirmed}: it"
        message += " was put back from a copy. Serve the other machine, or say --accept-loss"
        raise InvalidRequest(message)

    def start(
        self, on_fenced: Callable[[StoreError], None], end: Callable[[], int] = lambda: 0
    ) -> None:
        """Renew from now on, on a thread.

        Args:
            on_fenced: Called there, at most once.
            end: Gives the last position that is confirmed, or may be.
        """
        self._end = end
        arguments = (on_fenced,)
        self._thread = threading.Thread(target=self._run, args=arguments, name="witness")
        self._thread.daemon = True
        self._thread.start()

    def wait_until_held(self, timeout_s: float) -> bool:
        """Wait for the lease to run, but no longer than this; True if it does."""
        with self._changed:
            return self._changed.wait_for(lambda: self.left_s > 0, timeout_s)

    def stop(self) -> None:
        """Renew no more; say that this store tells nothing any more."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(self._own.lease_s)  # a request may hang
        _close(self._storage, self._own)

    def _run(self, on_fenced: Callable[[StoreError], None]) -> None:
        is_silent = False
        while not self._stopping.wait(self._own.lease_s / _RENEWALS):
            try:
                self.renew()
            except Fenced as reason:
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

    def _read(self) -> tuple[StoredContent, Holder]:
        """Read the witness's object, which must still be this store's.

        Raises:
            Fenced: It is not.
            Unavailable: It is not there, as in a folder that is not mounted. Nobody can take over
                by one that is gone: so the store pushes back until it is there again.
        """
        stored = self._storage.read(_NAME)
        if stored is None:
            message = f"{self.location}: {_NAME} is gone; whether this store may serve is not known"
            raise Unavailable(f"{message}: mount the folder, or restore the object")
        standing = _unpacked(self.location, stored.content)
        if standing.writer != self._own.writer:
            raise Fenced(self._who_took_over(standing))
        return stored, standing

    def _next(self, standing: Holder) -> Holder:
        renewal, is_paused = standing.renewal + 1, standing.is_paused  # a person resumes it
        return replace(self._own, renewal=renewal, is_paused=is_paused)

    def _took(self, began: float) -> None:
        with self._changed:
            self._held_until = began + self._own.lease_s
            self._changed.notify_all()

    def _checked(self, standing: Holder) -> Holder:
        if standing.root_id == self._own.root_id:
            return standing
        if standing.generation > self._own.generation:
            raise Fenced(self._who_took_over(standing))
        message = f"{self.location} is the witness of {standing.where}: name another prefix, or"
        message += " remove its primary.json if that root is gone"
        raise InvalidRequest(message)

    def _who_took_over(self, standing: Holder) -> str:
        if standing.root_id == self._own.root_id:
            return f"{self.location}: another store of this root serves now, on {standing.where}"
        return f"{self.location}: {standing.where} took over, with generation {standing.generation}"


def take_over(
    storage: Storage,
    replica: Identity,
    new: Identity,
    where: str,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Make another root the one that may serve, and wait until nobody else tells anything.

    Args:
        storage: Where the object is (`witness_at`).
        replica: The identity of the replica before its promotion.
        new: The identity of the root that will serve.
        where: Its folder or URI, to tell people.
        wait: Waits for so many seconds.

    Raises:
        Fenced: Another replica was promoted.
        InvalidRequest: The witness knows no primary, or another one.
        StoreError: The witness did not answer.
    """
    before = {replica.primary_id, *replica.superseded, replica.root_id, new.root_id}
    for _ in range(_TRIES):
        stored = storage.read(_NAME)
        if stored is None:
            message = f"{storage.location} has no {_NAME}: the primary uses this witness no more;"
            message += " see that it is stopped, and promote with --no-witness"
            raise InvalidRequest(message)
        standing = _unpacked(storage.location, stored.content)
        if standing.root_id not in before:
            message = f"{storage.location}: {standing.where} was promoted before, to generation"
            raise Fenced(f"{message} {standing.generation}: use that")
        generation = max(new.generation, standing.generation)
        own = Holder(
            root_id=new.root_id,
            generation=generation,
            writer=uuid4().hex,
            lease_s=standing.lease_s,
            renewal=standing.renewal + 1,
            where=f"{socket.gethostname()}:{where}",
            is_closed=standing.is_closed,
        )
        if storage.replace_if_unchanged(_NAME, _packed(own), stored.tag):
            if not standing.is_closed:
                wait_s = standing.lease_s * _CLOCKS_DIFFER
                _log.warning("waiting %.1f s: so long may %s go on", wait_s, standing.where)
                wait(wait_s)
                _close(storage, own)
            return
    message = f"{storage.location}: others change it all the time: try again"
    raise Unavailable(message)


def sight(storage: Storage) -> tuple[Holder, str] | None:
    """Read a witness's object and its tag; None if there is none.

    Raises:
        CorruptData: It cannot be read.
        StoreError: The witness did not answer.
    """
    stored = storage.read(_NAME)
    return stored and (_unpacked(storage.location, stored.content), stored.tag)


def take_place(storage: Storage, seen: Holder, tag: str, new: Identity, where: str) -> bool:
    """Make a standby the root that may serve, if the object is still the one that it saw.

    The standby has waited by then (`sparkstore.shipping.steps`): nobody tells anything under the
    object that is replaced, so the new one says at once that it need not be waited for.

    Raises:
        StoreError: The witness did not answer: look at it again.
    """
    own = Holder(
        root_id=new.root_id,
        generation=new.generation,
        writer=uuid4().hex,
        lease_s=seen.lease_s,
        renewal=seen.renewal + 1,
        where=f"{socket.gethostname()}:{where}",
        is_closed=True,
        position=seen.position,
    )
    return storage.replace_if_unchanged(_NAME, _packed(own), tag)


def pause(storage: Storage, *, is_paused: bool) -> Holder:
    """Let no standby take over, or let it again; the object then.

    Raises:
        InvalidRequest: The witness has no object.
        StoreError: It did not answer.
    """
    for _ in range(_TRIES):
        sighted = sight(storage)
        if sighted is None:
            raise InvalidRequest(_LOST.format(storage.location))
        changed = replace(sighted[0], renewal=sighted[0].renewal + 1, is_paused=is_paused)
        if storage.replace_if_unchanged(_NAME, _packed(changed), sighted[1]):
            return changed
    message = f"{storage.location}: others change it all the time: try again"
    raise Unavailable(message)


def _close(storage: Storage, own: Holder) -> None:
    """Release the lease at the witness, so that the next holder need not wait.

    Its failure costs that.
    """
    try:
        stored = storage.read(_NAME)
        if stored is None:
            return
        standing = _unpacked(storage.location, stored.content)
        if standing.writer == own.writer:
            closed = replace(standing, renewal=standing.renewal + 1, is_closed=True)
            storage.replace_if_unchanged(_NAME, _packed(closed), stored.tag)
    except (StoreError, OSError) as reason:
        _log.warning("the witness was not told that nobody serves: %s", reason)


def forget(storage: Storage, root: Identity) -> None:
    """Remove the object of a root that has no witness any more; nobody else's."""
    stored = storage.read(_NAME)
    if stored is not None and _unpacked(storage.location, stored.content).root_id == root.root_id:
        storage.delete(_NAME)


def _machine(holder: Holder) -> str:
    return holder.where.partition(":")[0]


def _packed(holder: Holder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _unpacked(location: str, content: bytes) -> Holder:
    try:
        return Holder(**json.loads(content))
    except (ValueError, TypeError) as reason:
        message = f"{location}/{_NAME} cannot be read ({reason}): see what wrote there"
        raise CorruptData(message) from reason
