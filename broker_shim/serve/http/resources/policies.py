"""Policies: arguments for all queues that fit a pattern."""

from __future__ import annotations

from msgspec import Struct

from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import OrderModel, OrderOutcome, PageQuery, QueueArguments, done
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import ADMIN, API, MONITOR, Endpoint
from sparkstore.operations.administration import AdminAction, Order


class PolicyRow(Struct, kw_only=True):
    """A policy, and how many queues it fits."""

    name: str
    match: str
    priority: int
    arguments: QueueArguments
    queues: int


class PolicyList(Struct, kw_only=True):
    """A page of policies, those that count most first."""

    total: int
    offset: int
    items: list[PolicyRow]


class PolicyCreation(OrderModel, kw_only=True):
    """A policy that is to be there, in the place of one of its name."""

    match: str
    arguments: QueueArguments
    priority: int = 0


async def list_policies(call: Call) -> PolicyList:
    """List a page of the policies."""
    broker, page = call.broker, call.query

    def read() -> PolicyList:
        items = [
            PolicyRow(
                name=policy.name,
                match=policy.match,
                priority=policy.priority,
                arguments=dict(policy.arguments),
                queues=sum(map(policy.fits, broker.queues)),
            )
            for policy in broker.policies[page.offset : page.offset + page.limit]
        ]
        return PolicyList(total=len(broker.policies), offset=page.offset, items=items)

    return await call.read(read)


async def set_policy(call: Call) -> OrderOutcome:
    """Set a policy; one that is there as asked for is no change."""
    body, name = call.body, call.names["policy"]
    order = Order(AdminAction.SET_POLICY, key=name, arguments=body.arguments, match=body.match)
    order = order._replace(priority=body.priority)
    return done(await call.order(order, dry_run=body.dry_run))


async def delete_policy(call: Call) -> OrderOutcome:
    """Delete a policy by its name."""
    order = Order(AdminAction.DELETE_POLICY, key=call.names["policy"])
    return done(await call.order(order, dry_run=call.query.dry_run))


ENDPOINTS = (
    Endpoint("GET", API + "/policies", MONITOR, list_policies, PolicyList, PageQuery),
    Endpoint(
        "PUT",
        API + "/policies/{policy}",
        ADMIN,
        set_policy,
        OrderOutcome,
        body=PolicyCreation,
        acts=(Act.SET_POLICY,),
    ),
    Endpoint(
        "DELETE",
        API + "/policies/{policy}",
        ADMIN,
        delete_policy,
        OrderOutcome,
        OrderModel,
        conflict=409,
        acts=(Act.SET_POLICY,),
    ),
)
