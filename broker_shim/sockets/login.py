"""Log one peer in: who it is, and whether its connection counts or waits for a refusal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from broker_shim.broker.storage.loop import Later
from broker_shim.security.rules.permissions import Principal
from broker_shim.security.rules.users import ANONYMOUS
from broker_shim.sockets.access import Access
from sparkstore.core.queue_names import shown


class PassedLogin(Protocol):
    """SASL let a peer in."""

    @property
    def mechanism(self) -> str:
        """Return the mechanism that the peer chose."""

    @property
    def identity(self) -> str:
        """Return the name of the user."""


class FailedLogin(Protocol):
    """The result of SASL for a peer that it refused."""

    @property
    def mechanism(self) -> str:
        """Return the mechanism that the peer chose; empty if none."""

    @property
    def reason(self) -> str:
        """Return the reason of the refusal, for the audit log."""


class Login:
    """The login of one connection.

    Attributes:
        principal: The peer's identity; anonymous until it logged in, or if it need not.
        is_in: True from the peer's open until its connection is gone.
        is_waiting: True while the answer of a failed login waits (see `attempts`).
    """

    def __init__(self, access: Access, later: Later, has_output: Callable[[], None]) -> None:
        self.principal = Principal()
        self.is_in = False
        self.is_waiting = False
        self._access = access
        self._later = later
        self._has_output = has_output
        self._mechanism: str | None = None
        self._is_given_up = False

    @property
    def is_known(self) -> bool:
        """False once the users file has no such user any more."""
        return self._access.guard.knows(self.principal, self._mechanism or "")

    def passed(self, event: PassedLogin) -> None:
        """SASL says who the peer is."""
        self._known(event.mechanism, event.identity)

    def failed(self, event: FailedLogin) -> None:
        """SASL says that it is not who it says."""
        delay_s = self._failed(event)
        if delay_s:
            self.is_waiting = True
            self._later(delay_s, self._answer)

    def opens(self, most: int) -> str | None:
        """Let the peer open; without SASL it is anonymous. Returns the reason if it may not.

        Args:
            most: Connections of one user.
        """
        if self._mechanism is None:
            self._known("", ANONYMOUS)
        if self._access.guard.opens(self._access.remote, self.principal, most):
            self.is_in = True
            self._access.newcomer.leave()
            return None
        return f"{most} connections of {shown(self.principal.name)} are open, and no more may be"

    def gone(self, given_up: FailedLogin | None) -> None:
        """End the login of a connection that is over; may be called twice.

        Args:
            given_up: The peer had begun to say who it is, and did not end: that is a failed login,
                as what it was asked is an answer, too.
        """
        if given_up is not None and not self._is_given_up:
            self._is_given_up = True
            self._failed(given_up)
        if self.is_in:
            self.is_in = False
            self._access.guard.closes(self.principal)

    def _failed(self, event: FailedLogin) -> float:
        """Write down and count a failed login; how long its answer has to wait, in seconds."""
        guard, remote, now_s = self._access.guard, self._access.remote, time.monotonic()
        delay_s = guard.login_failed(remote, event.mechanism, event.reason, now_s)
        self._access.newcomer.failed(now_s + delay_s)
        return delay_s

    def _known(self, mechanism: str, name: str) -> None:
        self._mechanism = mechanism
        self.principal = self._access.guard.let_in(self._access.remote, mechanism, name)

    def _answer(self) -> None:
        self.is_waiting = False
        self._has_output()
