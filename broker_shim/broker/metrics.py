"""The counters of the broker, and the gauges of its queues. No socket, no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from broker_shim.security.security_counts import SecurityCounts
from sparkstore.metrics.counters import counted, line_of
from sparkstore.metrics.histograms import MESSAGE_BOUNDS_S, Histogram, timed


@dataclass(slots=True)
class Metrics(SecurityCounts):
    """Counters since the start; one thread changes them."""

    connections: int = counted("Connections accepted.")
    received: int = counted("Messages that came in whole.")
    unroutable: int = counted(
        "Messages refused: they route to no queue, or for any other reason.",
        metric="refused",
        reason="unroutable",
    )
    refused: int = counted("Messages refused for any other reason.", reason="other")
    refused_queues: int = counted(
        "Queues and exchanges not made because their user has as many as it may."
    )
    enqueued: int = counted("Messages put on a queue; one on two queues counts twice.")
    not_durable: int = counted(
        "Messages put on a queue that is kept and not kept themselves: they end with the broker."
    )
    delivered: int = counted("Deliveries sent.")
    accepted: int = counted("Deliveries accepted, durably.")
    rejected: int = counted("Deliveries rejected.")
    released: int = counted("Deliveries given back, for whatever reason.")
    expired: int = counted("Messages not delivered because they were too old.")
    moved: int = counted("Messages moved, purged, requeued or put back by bulk operations.")
    died_expired: int = counted(
        "Messages taken off a queue because they were too old, failed too often or were rejected.",
        metric="dead_lettered",
        reason="expired",
    )
    died_over_delivered: int = counted(
        "Messages of these that were delivered too often.",
        metric="dead_lettered",
        reason="over-delivered",
    )
    died_rejected: int = counted(
        "Messages of these that a consumer rejected.", metric="dead_lettered", reason="rejected"
    )
    died_cycle: int = counted(
        "Messages of these that were to go to a queue where they had expired: they ended.",
        metric="dead_lettered",
        reason="cycle",
    )
    replaced: int = counted("Messages taken off a last-value queue because a newer one came.")
    transactions_committed: int = counted(
        "Local transactions in which something was done, durably."
    )
    transactions_rolled_back: int = counted(
        "Local transactions that were undone: by the client, its loss or a refusal."
    )
    protocol_errors: int = counted("Connections closed for what the peer sent.")

    delivery_duration_seconds: Histogram = timed(
        "Seconds from a message's enqueue on its queue to each sending of it to a consumer.",
        MESSAGE_BOUNDS_S,
    )

    @property
    def dead_lettered(self) -> int:
        """All messages that died, whatever the reason."""
        died = self.died_expired + self.died_over_delivered + self.died_rejected
        return died + self.died_cycle

    def sent(self, came_at_us: Sequence[int | None], now_us: int) -> None:
        """Count deliveries of messages that came to their queue at these times, UTC µs."""
        self.delivered += len(came_at_us)
        observe = self.delivery_duration_seconds.observe
        for at_us, alike in groupby(came_at_us):
            if at_us is not None:
                observe((now_us - at_us) / 1e6, len([*alike]))

    def transaction_ended(self, *, committed: bool) -> None:
        """Count a local transaction in which something was done."""
        self.transactions_committed += committed
        self.transactions_rolled_back += not committed

    def line(self) -> str:
        """Write all counters as one line of a log."""
        return line_of(self)
