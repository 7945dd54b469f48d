"""Branches that are not prepared: who works in them, and until when."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from broker_shim.broker.orders.xid_claims import XidClaims
from broker_shim.broker.storage.loop import Later
from broker_shim.completion import OnComplete
from broker_shim.listener_0_10.transaction import SessionTransaction
from broker_shim.store.branch_store import Xid

_LEAST_S = 1.0
"""Between two looks at one that the store is asked about."""


@dataclass(slots=True, eq=False)
class OpenBranch:
    """One branch, from dtx.start until it is prepared or ended.

    Attributes:
        xid: The name that its coordinator gave it.
        user: Whose it is.
        transaction: What was sent and accepted in it.
        sessions: Those that are there and have worked in it.
        active: Those that work in it now.
        suspended: Those that have interrupted their work.
        has_failed: It can be rolled back only.
        is_late: As its timeout has passed, or the broker's.
        is_deciding: The store is asked.
        timeout_s: Seconds from when it was set; 0: it has none of its own.
        began_at_s: By the clock of `OpenBranches`.
    """

    xid: Xid
    user: str
    transaction: SessionTransaction
    sessions: set[Hashable] = field(default_factory=set)
    active: set[Hashable] = field(default_factory=set)
    suspended: set[Hashable] = field(default_factory=set)
    has_failed: bool = False
    is_late: bool = False
    is_deciding: bool = False
    timeout_s: int = 0
    timer: object = None
    began_at_s: float = 0.0

    def fail(self) -> None:
        """Undo the work of the branch, which can then only be rolled back."""
        self.has_failed = True
        self.transaction.undo()


class OpenBranches:
    """The open branches of all clients of a broker. On the loop's thread only.

    Attributes:
        most_s: A branch fails so long after its begin, in seconds: the default of its timeout.
    """

    def __init__(
        self,
        later: Later,
        most_s: float,
        claims: XidClaims,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with no branch that is open.

        Args:
            later: Makes a call after a while.
            most_s: A branch fails so long after its begin, in seconds, whatever its own timeout.
            claims: Knows what was begun at other brokers.
            clock: Only rises, in seconds.
        """
        self._later, self.most_s, self._clock = later, most_s, clock
        self._claims = claims
        claims.on_lost = self._lost
        self._beginning: set[Xid] = set()
        self._branches: dict[Xid, OpenBranch] = {}
        self._of_session: dict[Hashable, dict[OpenBranch, None]] = {}
        self._is_looked_at_later = False

    def begin(self, xid: Xid, on_done: OnComplete) -> bool:
        """Reserve a branch that is to begin: `add` it then, or say that it is `not_begun`.

        Args:
            xid: The name of the branch.
            on_done: Told if it may; see `XidClaims.claim`.

        Returns:
            False if it was begun here; then nothing is told.
        """
        if xid in self._branches or xid in self._beginning:
            return False
        self._beginning.add(xid)
        self._claims.claim(xid, on_done)
        return True

    def not_begun(self, xid: Xid) -> None:
        """Free a branch that was to begin and does not."""
        self._beginning.discard(xid)
        self._claims.release(xid)

    def add(self, branch: OpenBranch) -> None:
        """Add a branch that begins now."""
        self._beginning.discard(branch.xid)
        branch.began_at_s = self._clock()
        self._branches[branch.xid] = branch
        self._look_later()

    def _look_later(self) -> None:
        """Set one timer for all: that of the oldest branch that may still fail."""
        every = self._branches.values()
        waiting = (branch for branch in every if not branch.has_failed or not branch.sessions)
        oldest = next(waiting, None)
        if oldest is not None and not self._is_looked_at_later:
            self._is_looked_at_later = True
            due_s = oldest.began_at_s + self.most_s - self._clock()
            self._later(max(due_s, _LEAST_S), self._look)

    def _look(self) -> None:
        self._is_looked_at_later = False
        due_s = self._clock() - self.most_s
        for branch in [*self._branches.values()]:
            if branch.began_at_s > due_s:
                break
            self._late(branch)
        self._look_later()

    def _late(self, branch: OpenBranch) -> None:
        if branch.is_deciding:
            return
        if not branch.has_failed:
            branch.is_late = True
            self._fail(branch)
        elif not branch.sessions:
            self.forget(branch)

    def _fail(self, branch: OpenBranch) -> None:
        """Fail a branch, which can only be rolled back, while a session knows of it."""
        branch.fail()
        if not branch.sessions:
            self.forget(branch)

    def _lost(self, xid: Xid) -> None:
        """Fail a branch that another broker began, when its service did not know of this one."""
        branch = self._branches.get(xid)
        if branch is not None and not branch.is_deciding and not branch.has_failed:
            self._fail(branch)

    def work(self, session: Hashable, branch: OpenBranch) -> None:
        """A session works in a branch."""
        branch.sessions.add(session)
        self._of_session.setdefault(session, {})[branch] = None

    def find(self, xid: Xid) -> OpenBranch | None:
        """The open branch of an xid."""
        return self._branches.get(xid)

    def count_of(self, user: str) -> int:
        """Count the branches that a user has."""
        return sum(branch.user == user for branch in self._branches.values())

    def forget(self, branch: OpenBranch) -> None:
        """Forget a branch that is prepared, or ended."""
        if self._branches.get(branch.xid) is branch:
            del self._branches[branch.xid]
            self._claims.release(branch.xid)
            for session in branch.sessions:
                branches = self._of_session.get(session, {})
                branches.pop(branch, None)
                if not branches:
                    self._of_session.pop(session, None)

    def set_timeout(self, branch: OpenBranch, timeout_s: int) -> None:
        """Fail a branch so many seconds from now, unless it has ended; 0: by no timeout.

        Failed, it stays to be rolled back, until its sessions end.
        """
        branch.timeout_s = timeout_s
        branch.timer = timer = object()

        def late() -> None:
            if self._branches.get(branch.xid) is branch and branch.timer is timer:
                self._late(branch)

        if timeout_s:
            self._later(timeout_s, late)

    def session_ended(self, session: Hashable, *, is_lost: bool) -> None:
        """Fail the branches that a session works in; those that it ended live on without it.

        XA lets any thread decide an idle branch, so it waits for its coordinator until its timeout
        or the broker's. Who is lost is no coordinator any more: its branches are rolled back. What
        the store is asked about is left to the answer.

        Args:
            session: The session that ended.
            is_lost: Its connection was lost, and nobody resumed it.
        """
        for branch in self._of_session.pop(session, ()):
            branch.sessions.discard(session)
            is_associated = session in branch.active | branch.suspended
            branch.active.discard(session)
            branch.suspended.discard(session)
            if branch.is_deciding:
                continue
            if is_lost:
                self.forget(branch)
                branch.fail()
            elif is_associated:
                branch.fail()  # it stays: who decides it is told that it was rolled back
