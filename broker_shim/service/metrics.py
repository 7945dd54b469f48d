"""What the service counts, and its text for Prometheus' textfile collector."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from sparkstore.log.metrics import LogMetrics


@dataclass(slots=True)
class ServiceMetrics:
    """Counters since the start, changed under the store's lock.

    Attributes:
        connections: Members that were let in.
        sent_away: Of these or others: told goodbye for what they did.
        batches: Holdings of the lock; `requests` divided by it says how well they are shared.
        requests: Decided.
        refused: Of those.
        replayed: Came again, and were not decided again.
    """

    connections: int = 0
    sent_away: int = 0
    batches: int = 0
    requests: int = 0
    refused: int = 0
    replayed: int = 0

    def line(self, log: LogMetrics) -> str:
        """All of them, and what the log did, in one line of a log."""
        counted = " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))
        return f"{counted} records={log.records} syncs={log.groups} commits={log.delta_commits}"

    def write(self, path: Path, log: LogMetrics) -> None:
        """Replace a textfile of Prometheus, so that a reader sees the old one or the new."""
        counters = {f.name: getattr(self, f.name) for f in fields(self)}
        counters |= {"records": log.records, "syncs": log.groups, "commits": log.delta_commits}
        lines = []
        for name, count in counters.items():
            full = f"sparkstore_service_{name}_total"
            lines += [f"# TYPE {full} counter", f"{full} {count}"]
        new = path.with_name(path.name + ".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(path)
