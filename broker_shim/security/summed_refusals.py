"""Refusals that come by the hundred, in a line of the audit log a second. Pure but for that line.

Who floods the broker with connections must not have it write a line for each. The first refusal is
told at once, what follows within a second is counted and told together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

INTERVAL_S = 1.0
_MOST_HOSTS = 1000
_MOST_TOLD = 5


class SummedRefusals:
    """Refusals of one kind, summed up in audit lines. Times are of a clock that rises.

    Attributes:
        pending: Refusals that no line has told yet.
    """

    def __init__(self, write: Callable[..., None], interval_s: float = INTERVAL_S) -> None:
        """Sum up refusals; `write` gets the details of a line."""
        self._write, self._interval_s = write, interval_s
        self._quiet_until_s = float("-inf")
        self._hosts: Counter[str] = Counter()
        self._reason = ""
        self.pending = 0

    def add(self, host: str, now_s: float, **details: object) -> None:
        """Add one refusal; `details` are for a line of its own.

        Args:
            host: The address that was refused.
            now_s: The time of the refusal, in seconds of a clock that only rises.
            details: Among them `reason`.
        """
        is_quiet = now_s < self._quiet_until_s
        if not (is_quiet or self.pending):
            self._write(**details)
            self._quiet_until_s = now_s + self._interval_s
            return
        self.pending += 1
        self._reason = str(details.get("reason", ""))
        if host in self._hosts or len(self._hosts) < _MOST_HOSTS:
            self._hosts[host] += 1
        if not is_quiet:
            self.tell(now_s)

    def tell(self, now_s: float | None = None) -> None:
        """Tell what is pending, in one line; nothing if nothing is.

        Args:
            now_s: Until an interval after this time no other line is written; None: that stays.
        """
        if not self.pending:
            return
        if now_s is not None:
            self._quiet_until_s = now_s + self._interval_s
        most = ", ".join(f"{host} ({n})" for host, n in self._hosts.most_common(_MOST_TOLD))
        others = len(self._hosts) - _MOST_TOLD
        peers = f"{most} and {others} more" if others > 0 else most
        self._write(count=self.pending, peers=peers, reason=self._reason)
        self._hosts.clear()
        self.pending = 0
