"""The counters of the store service."""

from __future__ import annotations

from dataclasses import dataclass

from sparkstore.log.log_metrics import LogMetrics
from sparkstore.metrics.counters import counted, line_of


@dataclass(slots=True)
class ServiceMetrics:
    """Counters since the start, changed under the store's lock."""

    connections: int = counted("Members that were let in.")
    sent_away: int = counted("Members, or others, that were told goodbye for what they did.")
    batches: int = counted("Holdings of the store's lock; requests share them.")
    requests: int = counted("Requests decided.")
    refused: int = counted("Requests refused.")
    lost: int = counted("Members that were gone too long, and lost what they held.")
    late: int = counted("Transactions of members that were open too long, and rolled back.")
    replayed: int = counted("Requests that came again, and were not decided again.")

    def line(self, log: LogMetrics) -> str:
        """Write all counters, and what the log did, as one line of a log."""
        done = f"records={log.records} syncs={log.groups} commits={log.delta_commits}"
        return f"{line_of(self)} {done}"
