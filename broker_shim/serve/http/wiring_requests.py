"""Requests about exchanges, bindings, and policies for all queues that fit a pattern."""

from __future__ import annotations

from broker_shim.serve.http.bodies import (
    BindingList,
    ExchangeList,
    ExchangeRow,
    OrderOutcome,
    PolicyList,
    PolicyRow,
)
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.queue_requests import binding_row, done
from sparkstore.operations.administration import DURABILITIES, AdminAction, Order


async def list_exchanges(call: Call) -> ExchangeList:
    """List a page of the exchanges."""
    broker, page = call.house.broker, call.query

    def read() -> ExchangeList:
        names = sorted(broker.router.definitions)
        items = []
        for name in names[page.offset : page.offset + page.limit]:
            there = broker.queries.exchange(name)
            assert there is not None, "it is defined"
            durability = DURABILITIES[there.durability]
            items.append(
                ExchangeRow(
                    name=name,
                    type=there.type,
                    durability=durability,  # type: ignore[arg-type]  # one of the three words
                    alternate_exchange=there.alternate,
                )
            )
        return ExchangeList(total=len(names), offset=page.offset, items=items)

    return await call.read(read)


async def create_exchange(call: Call) -> OrderOutcome:
    """Create an exchange; one that is there as asked for is no change."""
    body, act = call.body, AdminAction.CREATE_EXCHANGE
    order = Order(act, exchange=call.names["exchange"], type=body.type, arguments=body.arguments)
    return done(await call.order(order, dry_run=body.dry_run))


async def delete_exchange(call: Call) -> OrderOutcome:
    """Delete an exchange; by force with its bindings."""
    act, limits = AdminAction.DELETE_EXCHANGE, call.query
    order = Order(act, exchange=call.names["exchange"], force=limits.force)
    order = order._replace(if_unused=limits.if_unused)
    return done(await call.order(order, dry_run=limits.dry_run))


async def list_bindings(call: Call) -> BindingList:
    """List a page of the bindings, of one queue or exchange if that is asked for."""
    router, page = call.house.broker.router, call.query

    def read() -> BindingList:
        keys = sorted(
            key
            for key in router.bindings()
            if page.queue in {None, key.queue} and page.exchange in {None, key.exchange}
        )
        items = [binding_row(router, key) for key in keys[page.offset : page.offset + page.limit]]
        return BindingList(total=len(keys), offset=page.offset, items=items)

    return await call.read(read)


async def add_binding(call: Call) -> OrderOutcome:
    """Bind a queue to an exchange."""
    body, act = call.body, AdminAction.ADD_BINDING
    order = Order(act, body.queue, body.exchange, body.key, arguments=body.arguments)
    return done(await call.order(order, dry_run=body.dry_run))


async def remove_binding(call: Call) -> OrderOutcome:
    """Take a binding of a queue away."""
    said, act = call.query, AdminAction.REMOVE_BINDING
    order = Order(act, said.queue, said.exchange, said.key)
    return done(await call.order(order, dry_run=said.dry_run))


async def list_policies(call: Call) -> PolicyList:
    """List a page of the policies."""
    broker, page = call.house.broker, call.query

    def read() -> PolicyList:
        items = [
            PolicyRow(
                name=each.name,
                match=each.match,
                priority=each.priority,
                arguments=dict(each.arguments),
                queues=sum(map(each.fits, broker.queues)),
            )
            for each in broker.policies[page.offset : page.offset + page.limit]
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
