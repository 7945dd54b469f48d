"""Requests for copies of messages: back from history to a queue, or out to a file.

An export reads what is on the queue when it is asked for, in the order of the queue, part by part
as its reader takes it. A message that leaves meanwhile is left out, and none is taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import chain, islice
from typing import Annotated

from msgspec import Meta, Struct, field

from broker_shim.errors import InvalidRequest
from broker_shim.security.rules.rights import Act
from broker_shim.serve.http.bodies import Model
from broker_shim.serve.http.call_control import CallControl
from broker_shim.serve.http.calls import LINES, Call, now_us
from broker_shim.serve.http.endpoint import MONITOR, OPERATOR, QUEUE, Endpoint
from broker_shim.serve.http.port.exchange import Response
from broker_shim.serve.http.refusals import HttpRefusal
from broker_shim.serve.http.resources.events import check_streams, counted
from broker_shim.serve.http.table_reads import flushed
from broker_shim.store.interface import BrokerStore
from sparkstore.operations.choice import Choice, age_us
from sparkstore.tables.root import Root

_PART, _PART_BYTES = 100, 1 << 20


class MessageChoice(Model):
    """Conditions that all hold for a chosen message; an age is such as `90s`, `2h` or `7d`.

    An empty list of `ids` is refused: who computed it does not mean all messages.
    """

    ids: Annotated[list[Annotated[int, Meta(ge=1)]], Meta(min_length=1)] | None = None
    older_than: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    subject: str | None = None


class ReplayOrder(MessageChoice):
    """Messages that left a queue, copies of which go to it again, or to `to`."""

    to: str | None = None
    dry_run: bool = False


class ReplayOutcome(Struct, kw_only=True):
    """How many copies were put on a queue; a dry run tells in `would` how many would be."""

    queue: str
    to: str
    dry_run: bool
    would: int | None = None
    done: int = 0


class ExportOrder(MessageChoice):
    """Messages to be told with their content; without conditions all that are on the queue."""


async def replay_messages(call: Call) -> ReplayOutcome:
    """Put copies of messages that left a queue back from history."""
    body, name = call.body, await call.named_queue()
    to = await call.queue(name if body.to is None else body.to, Act.SEND)
    choice = _choice(body)
    if choice == Choice():
        text = "say which messages: ids, older_than, properties or subject; older_than 0s: all"
        raise HttpRefusal(400, text)
    messages = None if body.ids is None else len(body.ids)
    call.audit_read("replay", name, to=to, messages=messages, dry_run=body.dry_run or None)
    root = await flushed(call)
    outcome = ReplayOutcome(queue=name, to=to, dry_run=body.dry_run)
    control = None if body.dry_run else CallControl(call)
    count = await asyncio.to_thread(_replayed, root, outcome, choice, control)
    if body.dry_run:
        outcome.would = count
    else:
        outcome.done = count
    return outcome


def _replayed(root: Root, outcome: ReplayOutcome, choice: Choice, to: CallControl | None) -> int:
    """Put copies of what left a queue, or only count them, on a thread that may wait."""
    from sparkstore.content.reader import ContentReader  # noqa: PLC0415  # it loads deltalake
    from sparkstore.control.bulk_run import replay  # noqa: PLC0415
    from sparkstore.control.message_choice import departed  # noqa: PLC0415
    from sparkstore.recovery.recovered_state import recovered_state  # noqa: PLC0415

    reader, state = ContentReader(root), recovered_state(root)
    pairs = departed(root, state, reader, outcome.queue, outcome.to, choice)
    ids = (message.message_id for message, _header in pairs)
    if to is None:
        return sum(1 for _ in ids)
    return replay(to, reader, outcome.to, ids, lambda _sum: None).done


async def export_messages(call: Call) -> Response:
    """Export messages of a queue with header, properties and body, a line of JSON each."""
    name, choice = await call.named_queue(), _choice(call.body)
    check_streams()
    messages = None if call.body.ids is None else len(call.body.ids)
    call.audit_read("export", name, messages=messages)
    parts = _parts(call.served.store, await _chosen(call, name, choice), choice)
    return Response(kind=LINES, parts=counted(parts))


async def _chosen(call: Call, name: str, choice: Choice) -> list[int]:
    """List the messages on a queue that may be meant, by what their entries say."""
    at_us, entry = now_us(), call.broker.calls.entry
    ids = await call.message_ids(name)
    if choice.message_ids:
        ids = [i for i in ids if i in choice.message_ids]
    if choice.older_than_us is None:
        return ids

    def old(part: Sequence[int]) -> list[int]:
        entries = ((i, entry(name, i)) for i in part)
        return [i for i, it in entries if it and choice.takes(i, it.at, at_us)]

    return [*chain.from_iterable(await call.in_turns(ids, old))]


async def _parts(store: BrokerStore, ids: list[int], choice: Choice) -> AsyncGenerator[bytes, None]:
    left = iter(ids)
    while (lines := await asyncio.to_thread(_lines, store, left, choice)) is not None:
        yield lines


def _lines(store: BrokerStore, left: Iterator[int], choice: Choice) -> bytes | None:
    """Read the next messages, and encode those that are chosen and there, until it is about a MiB.

    None: there are no more. A queue may have large messages, so no more of them are in memory.
    """
    from sparkstore.cli.output import json_lines, message_as_json  # noqa: PLC0415

    lines, size, count = list[str](), 0, 0
    for count, message_id in enumerate(islice(left, _PART), 1):  # noqa: B007
        try:
            stored = store.load(message_id)
        except InvalidRequest:  # it left meanwhile
            continue
        if choice.takes_header(stored.header):
            lines += json_lines([message_as_json(message_id, stored.header, stored.body)])
            size += len(lines[-1])
        if size >= _PART_BYTES:
            break
    return "".join(f"{line}\n" for line in lines).encode() if count else None


def _choice(body: MessageChoice) -> Choice:
    least_us = None if body.older_than is None else age_us("older_than", body.older_than)
    pairs = tuple(body.properties.items())
    return Choice(frozenset(body.ids or ()), least_us, pairs, body.subject)


ENDPOINTS = (
    Endpoint(
        "POST",
        QUEUE + "/replay",
        OPERATOR,
        replay_messages,
        ReplayOutcome,
        body=ReplayOrder,
        acts=(Act.RECEIVE,),
        target_acts=(Act.SEND,),
    ),
    Endpoint(
        "POST",
        QUEUE + "/export",
        MONITOR,
        export_messages,
        body=ExportOrder,
        acts=(Act.RECEIVE,),
        only_reads=True,
    ),
)
