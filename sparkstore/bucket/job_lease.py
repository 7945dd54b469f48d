"""Let one job at a time work on a root in a bucket, by an object that its holder renews.

    <prefix>/jobs/lease.json     who has it, for how long, and how often it was renewed

The lease spares work; it is not what keeps commits apart. A job that was paused past its lease
and goes on changes nothing: each of its commits is put if absent after the version that it began
with (`table_publisher`), so it fails where another has committed meanwhile.

Whether a holder is dead is told by the looker's own clock alone: a lease that is not renewed for
as long as it says, and a quarter more, is free. No two machines' clocks are compared.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from uuid import uuid4

from sparkstore.errors import CorruptData, Locked, StoreError, Unavailable
from sparkstore.storage.storage import Storage

_log = logging.getLogger(__name__)

NAME = "jobs/lease.json"
LEASE_S = 30.0
_CLOCKS_DIFFER = 1.25
_LOOKS = 10
"""So often a lease is looked at before it is called free."""


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The run of a job that holds the lease, or held it last.

    Attributes:
        owner: UUID drawn for one run of a job.
        job: Its name, to tell people.
        where: Machine and process, to tell people.
        lease_s: Seconds without a renewal after which it is free.
        renewal: How often it was renewed.
        is_free: True once the run gave it back.
    """

    owner: str
    job: str = ""
    where: str = ""
    lease_s: float = LEASE_S
    renewal: int = 0
    is_free: bool = False


class JobLease:
    """The lease of one run; renewed by a thread until it is given back."""

    def __init__(
        self,
        bucket: Storage,
        job: str,
        *,
        lease_s: float = LEASE_S,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        """Take the lease of the bucket's jobs and keep it renewed.

        Args:
            bucket: Where the root is.
            job: Name of the job.
            lease_s: For how long at a time.
            wait: Waits for so many seconds.

        Raises:
            Locked: Another job renews it.
            CorruptData: The object cannot be read.
            StoreError: The bucket did not answer.
        """
        self._bucket = bucket
        where = f"{socket.gethostname()}:{os.getpid()}"
        self._own = LeaseHolder(uuid4().hex, job, where, lease_s)
        self._renewed_s = time.monotonic()
        _take(bucket, self._own, wait)
        self._stopping = threading.Event()
        self._lost = ""
        self._thread = threading.Thread(target=self._run, name="job lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Check that this run still holds the lease. No request is sent.

        Raises:
            Unavailable: Another job has taken it, or it was not renewed in time.
        """
        if self._lost:
            raise Unavailable(f"{self._lost}: run it again")
        late_s = time.monotonic() - self._renewed_s
        if late_s > self._own.lease_s:
            message = f"{self._bucket.location}: the jobs' lease was not renewed for {late_s:.0f} s"
            raise Unavailable(f"{message}: run it again")

    def give_back(self) -> None:
        """Let the next job begin at once; if that fails, it waits until the lease has run out."""
        self._stopping.set()
        self._thread.join()
        try:
            self._renew(is_free=True)
        except (StoreError, OSError) as reason:
            _log.warning("the jobs' lease was not given back, and runs out by itself: %s", reason)

    def _run(self) -> None:
        while not self._stopping.wait(self._own.lease_s / 3):
            try:
                self._renew()
            except (StoreError, OSError) as reason:
                _log.warning("the jobs' lease could not be renewed: %s", reason)
            if self._lost:
                return

    def _renew(self, *, is_free: bool = False) -> None:
        began_s = time.monotonic()
        stored = self._bucket.read(NAME)
        standing = None if stored is None else _unpacked(self._bucket, stored.content)
        if stored is None or standing is None or standing.owner != self._own.owner:
            who = "nobody" if standing is None else _who(standing)
            self._lost = f"{self._bucket.location}: {who} has the jobs' lease now"
            return
        renewed = replace(standing, renewal=standing.renewal + 1, is_free=is_free)
        if self._bucket.replace_if_unchanged(NAME, _packed(renewed), stored.tag):
            self._renewed_s = began_s


def _take(bucket: Storage, own: LeaseHolder, wait: Callable[[float], object]) -> None:
    seen: tuple[str, int] | None = None
    since_s = 0.0
    while True:
        stored = bucket.read(NAME)
        if stored is None:
            if bucket.put_if_absent(NAME, _packed(own)):
                return
            continue
        standing = _unpacked(bucket, stored.content)
        now = (standing.owner, standing.renewal)
        if seen is not None and seen != now and not standing.is_free:
            message = f"{bucket.location}: {_who(standing)} is at work: try again later"
            raise Locked(message)
        patience_s = standing.lease_s * _CLOCKS_DIFFER
        if standing.is_free or since_s >= patience_s:
            if bucket.replace_if_unchanged(NAME, _packed(own), stored.tag):
                return
            continue
        if seen is None:
            _log.info(
                "%s had the jobs' lease last; if it is not renewed within %.0f s it is free",
                _who(standing),
                patience_s,
            )
        seen = now
        step_s = patience_s / _LOOKS
        wait(step_s)
        since_s += step_s


def _who(holder: LeaseHolder) -> str:
    return f"the job {holder.job} of {holder.where}"


def _packed(holder: LeaseHolder) -> bytes:
    return json.dumps(asdict(holder)).encode()


def _unpacked(bucket: Storage, content: bytes) -> LeaseHolder:
    try:
        return LeaseHolder(**json.loads(content))
    except (ValueError, TypeError) as reason:
        message = f"{bucket.location}/{NAME} cannot be read ({reason}): remove it if no job runs"
        raise CorruptData(message) from reason
