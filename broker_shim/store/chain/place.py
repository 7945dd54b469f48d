"""A member's place in a chain: what it owes, and what becomes of it when it fails."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker_shim.completion import OnComplete
from broker_shim.errors import InvalidRequest, StoreError
from broker_shim.store.chain.calls import ChainMember
from sparkstore.core.state_machine.arguments import check_switch
from sparkstore.core.state_machine.call_values import StoreCall

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How a chain goes on when a member fails, or does not keep up.

    Attributes:
        may_drop: The member is left out until the next start, with an alarm in the log; otherwise
            the chain ends with it, as a store does whose disk fails.
        max_waiting: So many calls may wait for a member that may be dropped; it is dropped with
            one more. For one that may not be dropped everybody waits.
    """

    may_drop: bool = False
    max_waiting: int = 10_000

    def __post_init__(self) -> None:
        check_switch("may_drop", self.may_drop)
        if type(self.max_waiting) is not int or self.max_waiting < 0:
            raise InvalidRequest(f"max_waiting cannot be {self.max_waiting!r}: give at least 0")


class MemberStatus(NamedTuple):
    """The state of a member: what it completed, what it owes, and its failure.

    Attributes:
        name: Of the member.
        applied: Calls that it has completed, a transaction counting once.
        waiting: Calls that it was told and has not completed.
        failure: Why it is told nothing any more; None while it is.
    """

    name: str
    applied: int
    waiting: int
    failure: str | None


class MemberPlace:
    """A member's place in a chain: the calls that it owes, and its failure.

    Args:
        member: Who is told.
        tolerance: What becomes of the chain when it fails.
        fail: Ends the chain for a member that may not be dropped; what everybody is told then.
        on_drop: Told of a member that is dropped, and why.
    """

    def __init__(
        self,
        member: ChainMember,
        tolerance: Tolerance,
        fail: Callable[[str, StoreError], StoreError],
        on_drop: Callable[[str, str], None],
    ) -> None:
        self.member, self._on_drop = member, on_drop
        self._tolerance, self._fail = tolerance, fail
        self._lock = threading.Lock()
        self._owed: deque[OnComplete] = deque()
        self._applied = 0
        self._failure: str | None = None

    @property
    def is_told(self) -> bool:
        """False once the member was dropped."""
        return self._failure is None

    @property
    def status(self) -> MemberStatus:
        """Tell how many calls the member completed and owes, and its failure."""
        with self._lock:
            return MemberStatus(self.member.name, self._applied, len(self._owed), self._failure)

    def apply(self, calls: Sequence[StoreCall], on_complete: OnComplete) -> None:
        """Have the member make calls; `on_complete` also if it is dropped before it has."""
        with self._lock:
            self._owed.append(on_complete)
            waiting = len(self._owed)
        if self._tolerance.may_drop and waiting > self._tolerance.max_waiting:
            self._drop(f"{waiting} calls wait for it")
        else:
            self.member.apply(calls, self._completed)

    def _completed(self, error: StoreError | None) -> None:
        """Complete the oldest call that the member owes: it completes them in order."""
        with self._lock:
            if not self._owed:  # it was dropped meanwhile
                return
            on_complete = self._owed.popleft()
            self._applied += 1
        if error is not None and self._tolerance.may_drop:
            self._drop(str(error))
            error = None
        on_complete(None if error is None else self._fail(self.member.name, error))

    def _drop(self, why: str) -> None:
        with self._lock:
            self._failure = self._failure or why
            owed, self._owed = self._owed, deque()
        _log.error(
            "the store chain goes on without its member %s: %s; it catches up at the next start",
            *(self.member.name, why),
        )
        self._on_drop(self.member.name, why)
        self.member.drop()
        for on_complete in owed:
            on_complete(None)
