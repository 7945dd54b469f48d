"""Requests about two machines of which one serves: who serves, pause, and the planned switch.

They are answered by the machine that serves. The witness is asked on a thread of its own.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from functools import partial
from typing import Any

from msgspec import Struct

from broker_shim.errors import InvalidRequest, StoreError, Unavailable
from broker_shim.serve.http.bodies import OrderModel, OrderOutcome, done
from broker_shim.serve.http.calls import Call
from broker_shim.serve.http.endpoint import ADMIN, API, MONITOR, Endpoint
from broker_shim.serve.pair.control import PairControl, SwitchOutcome
from sparkstore.control.audit import AuditEvent

_SWITCH_S = 60.0
"""So long a switch is waited for; a standby that is lost amid it holds it up for its grace."""
FAILOVER = API + "/failover"


class FailoverAnswer(Struct, kw_only=True):
    """Which machine of a pair serves, and how its standby stands.

    `standby_in_step` is the root of the standby that may take over; `alone`: nothing that is
    confirmed is at a standby; the lag is what the standby lacks, since it was last in step.
    """

    serves: str
    served_last: str
    root_id: str
    generation: int
    standby_in_step: str
    paused: bool
    lease_s: float
    switched_at: str | None
    switched_why: str
    alone: bool | None
    lag_records: int | None
    lag_bytes: int | None
    lag_seconds: float | None


class FailoverOrder(OrderModel):
    """An order about the pair; a dry run tells whether it could be carried out."""


async def show_failover(call: Call) -> FailoverAnswer:
    """Show which machine serves, and how its standby stands."""
    return FailoverAnswer(**await asyncio.to_thread(_pair(call).status))


async def pause_failover(call: Call) -> OrderOutcome:
    """Let no standby take over, until `resume`."""
    return await _pause(call, "pause-failover", is_paused=True)


async def resume_failover(call: Call) -> OrderOutcome:
    """Let a standby take over again."""
    return await _pause(call, "resume-failover", is_paused=False)


async def switch_machines(call: Call) -> OrderOutcome:
    """Have the standby take over now, and become its standby; clients connect to the other one."""
    pair = _pair(call)
    if await call.read(lambda: call.broker.is_stopping):
        raise Unavailable("the broker is stopping: its standby takes over if it is in step")

    begun = list[Future[SwitchOutcome]]()

    async def begin() -> dict[str, Any]:
        if call.body.dry_run:
            return {"standby": (await asyncio.to_thread(pair.check_switch)).in_step}
        by = call.caller.user or call.caller.peer
        begun.append(await asyncio.to_thread(pair.switch, by))
        return {}

    answer = await _audited(call, "switch-machines", begin)  # whoever waits for it, or gives up
    for outcome in begun:
        answer.details = await _outcome_of(outcome)
    return answer


async def _outcome_of(begun: Future[SwitchOutcome]) -> dict[str, Any]:
    """Wait for a switch, which goes on if this is given up.

    Raises:
        Unavailable: The standby did not take over; it takes longer than this waits.
    """
    try:
        return (await asyncio.wait_for(asyncio.wrap_future(begun), _SWITCH_S))._asdict()
    except TimeoutError as reason:
        text = f"the switch has begun, goes on, and is not over after {_SWITCH_S:g} s: see which"
        raise Unavailable(f"{text} machine serves by sparkstore failover status ROOT") from reason


async def _pause(call: Call, act: str, *, is_paused: bool) -> OrderOutcome:
    pair = _pair(call)

    async def pause() -> dict[str, Any]:
        before = await asyncio.to_thread(pair.holder)
        if not call.body.dry_run and before.is_paused != is_paused:
            await asyncio.to_thread(partial(pair.pause, is_paused=is_paused))
        return {"changed": before.is_paused != is_paused}

    return await _audited(call, act, pause)


async def _audited(call: Call, act: str, order: Any) -> OrderOutcome:
    """Carry out an order, and write it down unless it is a dry run."""
    caller, dry_run = call.caller, call.body.dry_run
    audit = partial(
        caller.access.guard.audit,
        *(AuditEvent.ADMINISTRATION,),
        peer=caller.peer,
        user=caller.user,
        act=act,
    )
    try:
        answer = {"act": act, "changed": True, **await order()}
    except StoreError as error:
        if not dry_run:
            audit(error=error)
        raise
    if not dry_run:
        audit()
    return done({**answer, "dry_run": dry_run})


def _pair(call: Call) -> PairControl:
    if call.probes.pair is None:
        text = "this broker is of no pair: start it with --standby-listen (docs/failover.md)"
        raise InvalidRequest(text)
    return call.probes.pair


def _order(path: str, run: Any) -> Endpoint:
    return Endpoint("POST", path, ADMIN, run, OrderOutcome, body=FailoverOrder, conflict=409)


ENDPOINTS = (
    Endpoint("GET", FAILOVER, MONITOR, show_failover, FailoverAnswer, conflict=409),
    _order(FAILOVER + "/pause", pause_failover),
    _order(FAILOVER + "/resume", resume_failover),
    _order(FAILOVER + "/switch", switch_machines),
)
