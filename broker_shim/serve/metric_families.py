"""The metrics of the broker and its store: counters, and gauges of each queue.

All of a broker is read on the loop's thread only. The cost grows with the number of queues, and not
with the messages that wait on them. What is shown of a queue, its columns say (`queue_columns`).

Decision: the gauges of a queue are shown by the one process that has the queue: a broker on a root,
or the service of its members. A member never shows them, as it knows no more than what it was
granted. So the sum over all processes is right.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from itertools import islice

from prometheus_client.core import Metric

from broker_shim.broker.queues.queue import QueueDispatch
from broker_shim.broker.virtual_host import Broker
from broker_shim.errors import StoreError
from broker_shim.service.service import Service
from broker_shim.store.chain.store_chain import MessageStoreChain
from broker_shim.store.delta import DeltaMessageStore
from broker_shim.store.full_queues import FullQueues
from broker_shim.store.interface import MessageStore
from broker_shim.store.local import LocalMessageStore
from sparkstore import __version__
from sparkstore.core.queue_names import TEMPORARY
from sparkstore.metrics.exposition import counter, counters, gauge, histogram, info
from sparkstore.queue_columns import QueueFacts, Road, columns_of, row_of
from sparkstore.shipping.log_shipping import StandbyFigures
from sparkstore.storage.disk_room import DiskRoom

BROKER, SERVICE, LOG = "sparkstore_broker", "sparkstore_service", "sparkstore_log"
CHAIN = "sparkstore_chain_member"
MOST_QUEUES = 1_000
"""Queues with a label of their own: each costs a monitor some eleven series."""
OTHERS = "(others)"
"""Label of all queues after these, together."""


class ProcessRole(StrEnum):
    """The relation of a process to the queues that its metrics are about."""

    BROKER = "broker"
    SERVICE = "service"
    MEMBER = "member"


Figures = Mapping[str, float]
"""The figures of one queue now, by column; all reply queues together are as if they were one."""


def broker_families(
    broker: Broker,
    store: MessageStore,
    connection_count: int,
    role: ProcessRole = ProcessRole.BROKER,
    member: str = "",
) -> list[Metric]:
    """Everything about a broker and the store under it.

    Args:
        broker: The virtual host; its counters, and its queues.
        store: Under it; one that has a log tells of that, too.
        connection_count: Connections that are open now.
        role: Whether it has the queues alone, for members, or as a member.
        member: Its name as a member; empty if it is none.
    """
    families = [
        _info(role, member),
        *counters(BROKER, broker.metrics),
        gauge(f"{BROKER}_open_connections", "Connections open now.", [({}, connection_count)]),
    ]
    if role is not ProcessRole.MEMBER:
        text = "Queues, reply queues too."
        families.append(gauge(f"{BROKER}_queues", text, [({}, len(broker.queues))]))
        families += _queue_families(_figures(broker))
        families += _settlement_families(store)
    return [*families, *log_families(store)]


def _info(role: ProcessRole, member: str) -> Metric:
    labels = {"version": __version__, "role": role.value, "member": member}
    return info("sparkstore", "What this process is, and its release.", labels)


def log_families(store: MessageStore) -> Iterator[Metric]:
    """Show what the log of a store did, and what waits in it; nothing of a store without one.

    Of a chain, the log of its first store, and how each member fares.
    """
    if isinstance(store, MessageStoreChain):
        yield from _chain_families(store)
        store = store.first
    if isinstance(store, LocalMessageStore):
        yield from _full_families(store.full_queues)
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
        ("unshipped_age_seconds", "How long the oldest has waited.", backlog.unshipped_age_s),
        ("delta_failing", "1 while Delta commits fail.", bool(store.metrics.delta_error)),
        ("failed", "1 once the store takes nothing any more.", store.failure is not None),
    ):
        yield gauge(f"{LOG}_{name}", text, [({}, float(value))])
    yield from _room_families(store.room)
    if backlog.witness_left_s is not None:
        text = "How long the lease at the witness runs unless it is renewed; 0: nothing is told."
        yield gauge(f"{LOG}_witness_left_seconds", text, [({}, backlog.witness_left_s)])
    if store.log.shipping is not None:
        yield from _standby_families(store.log.shipping.figures)


def _standby_families(standby: StandbyFigures) -> Iterator[Metric]:
    for name, text, value in (
        ("in_step", "1 while a standby has all that is acknowledged.", standby.is_in_step),
        ("alone", "1 while what is acknowledged is at no standby.", standby.is_alone),
        ("lag_records", "Records that the standby lacks.", standby.lag_records),
        ("lag_bytes", "Bytes of those in the write-ahead log.", standby.lag_bytes),
        ("lag_seconds", "How long the standby has lacked any record.", standby.lag_s),
        ("silent_seconds", "How long a standby that must confirm is silent.", standby.silent_s),
    ):
        yield gauge(f"{LOG}_standby_{name}", text, [({}, float(value))])


def _full_families(full: FullQueues) -> Iterator[Metric]:
    """Yield counters of each queue that may be full; a family without a queue is not shown."""
    for name, text, reasons in (
        (
            "refused",
            "New messages that were refused as their queue is full.",
            {"full": full.refusals()},
        ),
        ("dropped", "Messages that a full queue let go, and duplicates, by reason.", full.drops()),
    ):
        values = [
            ({"queue": queue, "reason": reason}, float(count))
            for reason, counts in reasons.items()
            for queue, count in counts.items()
        ]
        if values:
            yield counter(f"sparkstore_queue_{name}", text, values)


def _room_families(room: DiskRoom) -> Iterator[Metric]:
    free = [({"folder": str(disk.folder)}, float(disk.free_bytes)) for disk in room.disks]
    yield gauge(f"{LOG}_free_bytes", "Bytes free on the disks of the root and its log.", free)
    text = "1 while new messages wait, as too little is free on a disk."
    yield gauge(f"{LOG}_held_back", text, [({}, float(bool(room.held_back)))])


def service_families(service: Service, decider: Broker | None) -> list[Metric]:
    """Everything about a store service and the store under it. On any thread.

    Args:
        service: Of members, in a process without AMQP.
        decider: The broker that decides for them; None before the first is here, and of a Broker-J.
    """
    return [
        _info(ProcessRole.SERVICE, ""),
        *counters(SERVICE, service.members.metrics),
        *_queue_families(_stored_figures(service.store, decider)),
        *_settlement_families(service.store),
        *log_families(service.store),
    ]


def _chain_families(chain: MessageStoreChain) -> Iterator[Metric]:
    for name, text in (
        ("waiting", "Calls that a member of the store chain was told and has not done."),
        ("up", "1 while a member of the store chain is told of calls, 0 once it was dropped."),
    ):
        values = (
            ({"member": m.name}, float(m.waiting if name == "waiting" else not m.failure))
            for m in chain.members
        )
        yield gauge(f"{CHAIN}_{name}", text, values)
    done = (({"member": member.name}, float(member.applied)) for member in chain.members)
    yield counter(f"{CHAIN}_calls", "Calls that a member of the store chain has done.", done)


def _settlement_families(store: MessageStore) -> Iterator[Metric]:
    first = store.first if isinstance(store, MessageStoreChain) else store
    if isinstance(first, LocalMessageStore):
        text = "Seconds from a message's enqueue on its queue to the decision that it is accepted."
        yield histogram(f"{BROKER}_settlement_duration_seconds", text, first.settlement_times.taken)


def _queue_families(queues: Mapping[str, Figures]) -> Iterator[Metric]:
    figures = _capped(queues)
    for column in columns_of(Road.METRICS):
        values = (({"queue": name}, row[column.name]) for name, row in figures.items())
        family = counter if column.is_counter else gauge
        yield family(f"sparkstore_queue_{column.metric or column.name}", column.text, values)


def _figures(broker: Broker) -> dict[str, Figures]:
    facts, now_us = broker.queries.facts, time.time_ns() // 1_000
    return _named((queue, facts(name, now_us)) for name, queue in broker.queues.items())


def _named(
    queues: Iterable[tuple[QueueDispatch | None, QueueFacts]], *, by_store: bool = False
) -> dict[str, Figures]:
    """Map figures by queue; all reply queues, which may be thousands, count as one."""
    named: dict[str, Figures] = {}
    own: list[Figures] = []
    for queue, facts in queues:
        row = row_of(Road.METRICS, facts, by_store=by_store)
        figures = {name: value or 0 for name, value in row.items()}
        if queue is None or queue.owner is None:
            named[facts.name] = figures
        else:
            own.append(figures)
    if own:
        named[TEMPORARY] = _summed(own)
    return named


def _capped(figures: Mapping[str, Figures]) -> Mapping[str, Figures]:
    """Sum the figures of all queues after the first `MOST_QUEUES`, which have labels of their own.

    The first are those that are there for longest, so that a queue does not change from one label
    to the other while it is there.
    """
    if len(figures) <= MOST_QUEUES:
        return figures
    named = ((name, row) for name, row in figures.items() if name != OTHERS)
    shown = dict(islice(named, MOST_QUEUES))
    return {**shown, OTHERS: _summed([row for name, row in figures.items() if name not in shown])}


def _stored_figures(store: DeltaMessageStore, decider: Broker | None) -> dict[str, Figures]:
    """Count what a store has on its queues; the rest is what the deciding broker knows.

    Reading that broker on another thread than its own is safe for plain numbers; a queue that has
    just been made or deleted is not there for a moment. A store that has ended shows no queue: its
    state says more than is durable.
    """
    now_us = time.time_ns() // 1_000
    queues = {} if decider is None else decider.queues
    with suppress(StoreError), store.look() as machine:
        rows = (
            (queue := queues.get(name), QueueFacts(name, state.entries, now_us, dispatch=queue))
            for name, state in machine.state.queues.items()
        )
        return _named(rows, by_store=True)
    return {}


def _summed(rows: list[Figures]) -> Figures:
    """Make one row of those of many queues, with the greatest of their ages."""
    return {
        column.name: column.joined(row[column.name] for row in rows)
        for column in columns_of(Road.METRICS)
    }
