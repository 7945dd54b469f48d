"""Consumers of a queue, with what each holds and how much more it takes."""

from __future__ import annotations

import json
from collections import Counter

from msgspec import Struct

from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import MONITOR, QUEUE, Endpoint


class ConsumerRow(Struct, kw_only=True):
    """A consumer: its `tag` is the name of its link, or of its subscription.

    `credit` is how many messages it takes now; with those that it holds, that is its prefetch.
    """

    holder: str
    container: str | None
    tag: str
    acquired: int
    credit: int


class ConsumerList(Struct, kw_only=True):
    """The consumers of a queue that are attached to this broker."""

    queue: str
    items: list[ConsumerRow]


async def list_consumers(call: Call) -> ConsumerList:
    """List the consumers of a queue."""
    name, broker = await call.named_queue(), call.broker

    def read() -> list[tuple[str, int, int]]:
        acquired = Counter(
            entry.acquired_by for _, entry in broker.queries.facts(name).entries.marked()
        )
        consumers = broker.queues[name].consumers
        return [(one.holder, acquired[one.holder], max(0, one.credit)) for one in consumers]

    rows = await call.read(read)
    return ConsumerList(queue=name, items=[_row(*row) for row in sorted(rows)])


def _row(holder: str, acquired: int, credit: int) -> ConsumerRow:
    """Split the name of a holder: of AMQP 1.0 it is a list of container, link and role."""
    try:
        container, tag, *_ = json.loads(holder)
    except (ValueError, TypeError):
        container, tag = None, holder
    return ConsumerRow(
        holder=holder, container=container, tag=str(tag), acquired=acquired, credit=credit
    )


ENDPOINTS = (Endpoint("GET", QUEUE + "/consumers", MONITOR, list_consumers, ConsumerList),)
