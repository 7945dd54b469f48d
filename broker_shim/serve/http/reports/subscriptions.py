"""Durable subscriptions: queues that belong to links, with who has each, and what waits."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from broker_shim.broker.virtual_host import Broker
from broker_shim.serve.http.bodies import PageQuery
from broker_shim.serve.http.calls import Call, now_us
from broker_shim.serve.http.endpoint import API, MONITOR, Endpoint
from broker_shim.serve.http.resources.exchanges import BindingRow, binding_row
from sparkstore.core.queue_names import SUBSCRIPTION_PREFIX, parts_of


class SubscriptionQuery(PageQuery):
    """The part of the list that is asked for; a link is looked up for each, so there are few."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 100


class SubscriptionRow(Struct, kw_only=True):
    """A subscription: its queue, the link that has it, and what it subscribes to.

    `subscriber` is null where no link is known any more. Arguments of a binding have its selector.
    """

    queue: str
    subscriber: str | None
    attached: bool
    depth: int
    oldest_age_s: float | None
    bindings: list[BindingRow]


class SubscriptionList(Struct, kw_only=True):
    """A page of subscriptions in the order of their queues' names."""

    total: int
    offset: int
    items: list[SubscriptionRow]


async def list_subscriptions(call: Call) -> SubscriptionList:
    """List a page of the subscriptions that outlive their links, with their bindings."""
    broker, page = call.broker, call.query

    def rows() -> list[SubscriptionRow]:
        at_us = now_us()
        return [_row(broker, name, at_us) for name in shown if name in broker.queues]

    # All names are copied on the loop, and looked at and sorted beside it.
    names = sorted(filter(_is_subscription, await call.read(lambda: [*broker.queues])))
    shown = names[page.offset : page.offset + page.limit]
    return SubscriptionList(total=len(names), offset=page.offset, items=await call.read(rows))


def _row(broker: Broker, name: str, at_us: int) -> SubscriptionRow:
    link = broker.administration.facts.link_of(name)
    keys = sorted(broker.router.bindings_of(name))
    return SubscriptionRow(
        queue=name,
        subscriber=None if link is None else link.name,
        attached=link is not None and link.is_attached,
        depth=len(broker.queues[name]),
        oldest_age_s=broker.queries.facts(name, at_us).oldest_age_s,
        bindings=[binding_row(broker.router, key) for key in keys],
    )


def _is_subscription(queue: str) -> bool:
    return any(part.startswith(SUBSCRIPTION_PREFIX) for part in parts_of(queue))


ENDPOINTS = (
    Endpoint(
        "GET",
        API + "/subscriptions",
        MONITOR,
        list_subscriptions,
        SubscriptionList,
        SubscriptionQuery,
    ),
)
