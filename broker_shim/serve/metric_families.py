"""What a monitor is shown of the broker and its store: counters, and gauges of each queue.

On the loop's thread only. The cost is that of the number of queues, whatever waits on them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import Metric

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.virtual_host import Broker
from broker_shim.service.service import Service
from broker_shim.store.chain.chain import MessageStoreChain
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.interface import MessageStore
from sparkstore.core.queue_names import TEMPORARY
from sparkstore.metrics.exposition import counter, counters, gauge

BROKER, SERVICE, LOG = "sparkstore_broker", "sparkstore_service", "sparkstore_log"
CHAIN = "sparkstore_chain_member"


class QueueFigures(NamedTuple):
    """One queue as it is now; of all reply queues together, as if they were one."""

    depth: int
    held: int
    bytes: int
    oldest_age_s: float
    consumers: int
    redelivered: int
    dead_lettered: int


_GAUGES = {
    "depth": ("messages", "Messages on the queue, those that consumers hold too."),
    "held": ("messages_held", "Messages on the queue that a consumer holds."),
    "bytes": ("bytes", "Bytes of the messages on the queue, headers and bodies."),
    "oldest_age_s": ("oldest_age_seconds", "Time since the oldest message came; 0 if it is empty."),
    "consumers": ("consumers", "Consumers attached to the queue."),
}
_COUNTERS = {
    "redelivered": ("redelivered", "Failed deliveries: the message was given back, and counted."),
    "dead_lettered": ("dead_lettered", "Messages that went from the queue to its dead letters."),
}


def broker_families(broker: Broker, store: MessageStore, connection_count: int) -> list[Metric]:
    """Everything about a broker and the store under it.

    Args:
        broker: The virtual host; its counters, and its queues.
        store: Under it; one that has a log tells of that, too.
        connection_count: Connections that are open now.
    """
    return [
        *counters(BROKER, broker.metrics),
        gauge(f"{BROKER}_open_connections", "Connections open now.", [({}, connection_count)]),
        gauge(f"{BROKER}_queues", "Queues, reply queues too.", [({}, len(broker.queues))]),
        *_queue_families(broker),
        *log_families(store),
    ]


def log_families(store: MessageStore) -> Iterator[Metric]:
    """What the log of a store did, and what waits in it; nothing of a store without one.

    Of a chain, the log of its first store, and how each member fares.
    """
    if isinstance(store, MessageStoreChain):
        yield from _chain_families(store)
        store = store.first
    if not isinstance(store, DeltaMessageStore):
        return
    yield from counters(LOG, store.metrics)
    backlog = store.backlog
    for name, text, value in (
        ("unsynced_bytes", "Bytes that wait for a sync of the log.", backlog.unsynced_bytes),
        ("uncommitted_bytes", "Bytes that wait for their Delta commit.", backlog.uncommitted_bytes),
        ("wal_files", "Files of the write-ahead log, in use or free.", backlog.wal_files),
        (
            "unshipped_bytes",
            "Bytes that were acknowledged and that only this machine's disk has, not the bucket.",
            backlog.unshipped_bytes,
        ),
        ("unshipped_age_s", "How long the oldest of them has waited.", backlog.unshipped_age_s),
        ("delta_failing", "1 while Delta commits fail.", bool(store.metrics.delta_error)),
        ("failed", "1 once the store takes nothing any more.", store.failure is not None),
    ):
        yield gauge(f"{LOG}_{name}", text, [({}, float(value))])
    if backlog.witness_left_s is not None:
        text = "How long the lease at the witness runs unless it is renewed; 0: nothing is told."
        yield gauge(f"{LOG}_witness_left_s", text, [({}, backlog.witness_left_s)])


def service_families(service: Service) -> list[Metric]:
    """Everything about a store service and the store under it."""
    return [*counters(SERVICE, service.members.metrics), *log_families(service.store)]


def _chain_families(chain: MessageStoreChain) -> Iterator[Metric]:
    for name, text in (
        ("waiting", "Calls that a member of the store chain was told and has not done."),
        ("up", "1 while a member of the store chain is told of calls, 0 once it was dropped."),
    ):
        values = (
            ({"member": each.name}, float(each.waiting if name == "waiting" else not each.failure))
            for each in chain.members
        )
        yield gauge(f"{CHAIN}_{name}", text, values)
    done = (({"member": each.name}, float(each.applied)) for each in chain.members)
    yield counter(f"{CHAIN}_calls", "Calls that a member of the store chain has done.", done)


def _queue_families(broker: Broker) -> Iterator[Metric]:
    figures = _figures(broker)
    for kinds, family in ((_GAUGES, gauge), (_COUNTERS, counter)):
        for field, (name, text) in kinds.items():
            values = (({"queue": each}, getattr(figures[each], field)) for each in figures)
            yield family(f"sparkstore_queue_{name}", text, values)


def _figures(broker: Broker) -> dict[str, QueueFigures]:
    """By queue; reply queues, of which there may be thousands with no name to know, as one."""
    now_us = time.time_ns() // 1_000
    found: dict[str, QueueFigures] = {}
    own: list[QueueFigures] = []
    for name, queue in broker.queues.items():
        figures = _figures_of(broker, queue, now_us)
        if queue.owner is None:
            found[name] = figures
        else:
            own.append(figures)
    if own:
        found[TEMPORARY] = _summed(own)
    return found


def _figures_of(broker: Broker, queue: QueueDispatch, now_us: int) -> QueueFigures:
    size, came_at_us = broker.calls.bytes_and_oldest(queue.name)
    return QueueFigures(
        depth=len(queue),
        held=queue.held_count,
        bytes=size,
        oldest_age_s=0.0 if came_at_us is None else max(0.0, (now_us - came_at_us) / 1e6),
        consumers=queue.consumer_count,
        redelivered=queue.redelivered,
        dead_lettered=queue.dead_lettered,
    )


def _summed(figures: Iterable[QueueFigures]) -> QueueFigures:
    """Of many queues: the sums, and the greatest age."""
    columns = zip(*figures, strict=True)
    oldest = QueueFigures._fields.index("oldest_age_s")
    return QueueFigures(
        *((max if index == oldest else sum)(column) for index, column in enumerate(columns))
    )
