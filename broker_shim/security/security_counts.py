"""Count a guard's events for a monitor. No socket, no file."""

from __future__ import annotations

from dataclasses import dataclass

from sparkstore.metrics.counters import counted


@dataclass(slots=True)
class SecurityCounts:
    """Counters since the start."""

    logins: int = counted("Logins that succeeded; of anonymous clients, too.")
    failed_logins: int = counted("Logins that failed.")
    refused_connections: int = counted("Connections closed because there were too many.")
    refused_permissions: int = counted("Attaches and messages that no rule allows.")
