"""When a member that is gone loses what it acquired: after its grace, counted from its going.

Why exactly once: a member loses what it holds under the store's lock, if it is not connected then.
What is released is held by nobody afterwards, so a second time finds nothing. A member that comes
back in time is connected before the lock is taken, and keeps all. One that comes back later is told
so: its requests about what it lost are refused.

Transactions that a member has open have their time likewise, on timers of their own.

A member may have a lease: a time of its own, which its record keeps (`members`).

After a restart of the service the time of every member starts anew: how long the service was away
is nobody's fault.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from broker_shim.errors import Closed, NotNow, StoreError

_log = logging.getLogger(__name__)

_RETRY_S = 1.0


class GraceTimers:
    """Calls `lose` with each member whose time is over, on a thread of its own.

    Any thread may call it.
    """

    def __init__(
        self,
        grace_s: float,
        lose: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the timers' thread, while no member is gone. See `gone`.

        Args:
            grace_s: How long a member may be gone, in seconds.
            lose: Called with its name; it raises Unavailable if it is to be called again later.
            clock: Only rises, in seconds.
        """
        self._grace_s, self._lose, self._clock = grace_s, lose, clock
        self._over_at: dict[str, float] = {}
        self._leases: dict[str, float] = {}
        self._guard = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="member grace", daemon=True)
        self._thread.start()

    def gone(self, members: Iterable[str]) -> None:
        """Start the time of members that are not connected, if it does not run yet."""
        with self._guard:
            now_s = self._clock()
            for name in members:
                self._over_at.setdefault(name, now_s + self._leases.get(name, self._grace_s))
            self._guard.notify_all()

    def again(self, member: str, after_s: float) -> None:
        """Call with a member in so many seconds, whatever was asked before."""
        with self._guard:
            self._over_at[member] = self._clock() + after_s
            self._guard.notify_all()

    def gone_with_leases(self, members: Mapping[str, int | None]) -> None:
        """Start the time of members, each with its lease in seconds; None: it has none."""
        for member, lease_s in members.items():
            self.lease(member, lease_s)
        self.gone(members)

    def lease(self, member: str, lease_s: float | None) -> None:
        """Give a member a time of its own, in seconds, from its next going; None: as all others."""
        with self._guard:
            if lease_s is None:
                self._leases.pop(member, None)
            else:
                self._leases[member] = lease_s

    def came(self, member: str) -> None:
        """Stop the time of a member that is connected."""
        with self._guard:
            self._over_at.pop(member, None)

    def close(self) -> None:
        """Stop the timers: no member loses anything any more."""
        with self._guard:
            self._is_closed = True
            self._guard.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (name := self._next()) is not None:
            try:
                self._lose(name)
            except NotNow:
                with self._guard:
                    self._over_at.setdefault(name, self._clock() + _RETRY_S)
            except Closed:
                return
            except StoreError as error:
                _log.error("what member %r holds is not released: %s", name, error)
                return

    def _next(self) -> str | None:
        """Wait for the next whose time is over, and forget it; None at the end."""
        with self._guard:
            while not self._is_closed:
                now_s = self._clock()
                name = min(self._over_at, key=self._over_at.__getitem__, default=None)
                if name is not None and self._over_at[name] <= now_s:
                    del self._over_at[name]
                    return name
                self._guard.wait(None if name is None else self._over_at[name] - now_s)
            return None


class MemberTimers(NamedTuple):
    """The timers of a service: for members that are gone, and for open transactions.

    Attributes:
        grace: Of members that are gone.
        transactions: Of members that have transactions open.
    """

    grace: GraceTimers
    transactions: GraceTimers

    def close(self) -> None:
        """End both kinds of timers."""
        self.grace.close()
        self.transactions.close()
