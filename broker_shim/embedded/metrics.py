"""What the broker counts, and its text for Prometheus' textfile collector."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from broker_shim.security.guard import SecurityCounts


@dataclass(slots=True)
class Metrics(SecurityCounts):
    """Counters since the start; one thread changes them.

    Attributes:
        connections: Accepted.
        received: Messages that came in whole.
        unroutable: Of those, refused because they route nowhere.
        refused: Of those, refused for any other reason.
        enqueued: Put on a queue (a message on two queues counts twice).
        delivered: Deliveries sent.
        accepted: Deliveries accepted, durably.
        rejected: Deliveries rejected.
        released: Given back, for whatever reason.
        expired: Not delivered because they were too old.
        moved: Moved, purged, requeued or put back by bulk operations.
        dead_lettered: Taken off a queue because they were too old or had failed too often.
        replaced: Taken off a last-value queue because a newer one came.
        transactions_committed: Local transactions in which something was done, durably.
        transactions_rolled_back: Of these, undone: by the client, by its loss, or by a refusal.
        protocol_errors: Connections closed for what the peer sent.
    """

    connections: int = 0
    received: int = 0
    unroutable: int = 0
    refused: int = 0
    enqueued: int = 0
    delivered: int = 0
    accepted: int = 0
    rejected: int = 0
    released: int = 0
    expired: int = 0
    moved: int = 0
    dead_lettered: int = 0
    replaced: int = 0
    transactions_committed: int = 0
    transactions_rolled_back: int = 0
    protocol_errors: int = 0

    def line(self) -> str:
        """All of them in one line of a log."""
        return " ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))

    def write(self, path: Path) -> None:
        """Replace a textfile of Prometheus, so that a reader sees the old one or the new."""
        lines = []
        for field in fields(self):
            name = f"sparkstore_broker_{field.name}_total"
            lines += [f"# TYPE {name} counter", f"{name} {getattr(self, field.name)}"]
        new = path.with_name(path.name + ".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(path)
