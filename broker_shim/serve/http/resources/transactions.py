"""Requests for branches of distributed transactions in doubt: list them, and decide one.

A decision is the operator's, and is remembered with the name of the user who gave it. It takes
messages off queues and puts others there, so the user needs the rights to both, of every queue of
the branch. A branch that was decided has no entries any more, so nobody knows its queues: to forget
it takes the right to get at any queue, as SQL does.
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import Model, OrderOutcome, PageQuery, done
from broker_shim.serve.http.calls import Call, iso_time
from broker_shim.serve.http.endpoint import ADMIN, API, MONITOR, Endpoint
from broker_shim.serve.http.refusals import HttpRefusal
from sparkstore.core.xids import xid_of, xid_text
from sparkstore.operations.branch_orders import BranchAct, BranchOrder


class BranchRow(Struct, kw_only=True):
    """A branch in doubt, or one that an operator decided; `holder`: who prepared or decided it."""

    xid: str
    state: str
    since: str
    holder: str | None
    operations: int


class BranchQuery(Model):
    """The name of who decides, where nobody logs in."""

    by: Annotated[str, Meta(min_length=1, max_length=200)] | None = None


class BranchList(Struct, kw_only=True):
    """A page of branches, the oldest first."""

    total: int
    offset: int
    items: list[BranchRow]


async def list_branches(call: Call) -> BranchList:
    """List a page of the branches in doubt, the oldest first."""
    store, page = call.broker.calls.branches, call.query
    branches = [] if store is None else await asyncio.to_thread(store.prepared)
    items = [
        BranchRow(
            xid=xid_text(branch.xid),
            state=branch.state,
            since=iso_time(branch.since),
            holder=branch.holder,
            operations=branch.operations,
        )
        for branch in branches[page.offset : page.offset + page.limit]
    ]
    return BranchList(total=len(branches), offset=page.offset, items=items)


async def commit_branch(call: Call) -> OrderOutcome:
    """Commit a branch in place of its coordinator."""
    return await _decide(call, BranchAct.COMMIT)


async def roll_back_branch(call: Call) -> OrderOutcome:
    """Roll a branch back in place of its coordinator."""
    return await _decide(call, BranchAct.ROLL_BACK)


async def forget_branch(call: Call) -> OrderOutcome:
    """Forget that a branch was decided, once its coordinator knows."""
    await call.check_everywhere(Act.USE_ANOTHERS, "nobody knows the queues of a decided branch")
    return await _decide(call, BranchAct.FORGET)


async def _decide(call: Call, act: BranchAct) -> OrderOutcome:
    try:
        xid = xid_of(call.names["xid"])
    except InvalidRequest as reason:
        raise HttpRefusal(400, str(reason)) from reason
    store = call.broker.calls.branches
    if store is not None and act is not BranchAct.FORGET:  # it has none any more
        entries = await asyncio.to_thread(store.branch_entries, xid)
        for queue in {row[0] for row in entries.taken}:
            await call.queue(queue, Act.PURGE)
        for queue in {row[0] for row in entries.enqueued}:
            await call.queue(queue, Act.SEND)
    by = call.caller.user or call.query.by or call.caller.peer
    order = BranchOrder(act, xid_text(xid), by)
    return done(await call.send(call.orders.branch(order)))


BRANCHES = API + "/transactions"
ENDPOINTS = (
    Endpoint("GET", BRANCHES, MONITOR, list_branches, BranchList, PageQuery),
    *(
        Endpoint(
            "POST",
            f"{BRANCHES}/{{xid}}/{way}",
            ADMIN,
            run,
            OrderOutcome,
            BranchQuery,
            conflict=409,
            acts=acts,
            target_acts=targets,
        )
        for way, run, acts, targets in (
            ("commit", commit_branch, (), (Act.PURGE, Act.SEND)),
            ("rollback", roll_back_branch, (), (Act.PURGE, Act.SEND)),
            ("forget", forget_branch, (Act.USE_ANOTHERS,), ()),
        )
    ),
)
