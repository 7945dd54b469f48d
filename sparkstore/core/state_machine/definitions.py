"""Write definitions, and what a branch will do, as the JSON of records, and read them back."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress, repeat
from operator import ne
from typing import Any

from sparkstore.core.durability import TerminusDurability
from sparkstore.core.fold import Entry, LinkState, QueueState, State
from sparkstore.core.link_records import link_key
from sparkstore.core.policies import Policy, with_policies
from sparkstore.core.queue_arguments import POLICY, check_arguments
from sparkstore.core.records import MessageHeader, Run
from sparkstore.core.state_machine.arguments import check_definition
from sparkstore.core.state_machine.call_values import Exchange, Queue, Recovered
from sparkstore.errors import InvalidRequest

MAX_DEPTH = 100
"""Of arrays and objects in one another."""
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""A text, in which brackets mean nothing, or a bracket."""
_OPENING, _CLOSING = frozenset("[{"), frozenset("]}")


def detail_of(wiring: Queue | Exchange) -> str:
    """A definition as JSON, the same text for equal definitions.

    Raises:
        InvalidRequest: It is no definition; the arguments are not what JSON can hold, or not what a
            queue can do.
    """
    check_definition(wiring)
    if isinstance(wiring, Queue):
        check_arguments(wiring.name, wiring.arguments)
    content: dict[str, Any] = {
        "arguments": dict(wiring.arguments),
        "durability": int(wiring.durability),
    }
    if isinstance(wiring, Exchange):
        content["type"] = wiring.type
    return as_json(content)


def as_json(content: object) -> str:
    """A JSON object with sorted keys.

    Raises:
        InvalidRequest: It is no object, or holds something that JSON cannot.
    """
    if not isinstance(content, Mapping):
        message = f"a JSON object is wanted, not {type(content).__name__}"
        raise InvalidRequest(message)
    try:
        text = json.dumps(content, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as reason:
        message = f"arguments must be what JSON can hold: {reason}"
        raise InvalidRequest(message) from reason
    check_depth(text)
    return text


def check_depth(text: str) -> None:
    """Refuse JSON that is nested so deeply that a later reader might have no stack left for it.

    Raises:
        InvalidRequest: It is nested more than 100 deep.
    """
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = deepest = 0
    for mark in _MARKS.findall(text):
        depth += (mark in _OPENING) - (mark in _CLOSING)
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        message = f"JSON is nested {deepest} deep: the limit is {MAX_DEPTH}"
        raise InvalidRequest(message)


def durability_of(detail: str) -> TerminusDurability:
    """The durability that a definition asks for; the highest if it does not say."""
    highest = TerminusDurability.UNSETTLED_STATE
    return TerminusDurability(json.loads(detail).get("durability", highest))


def queue_of(name: str, detail: str) -> Queue:
    """The definition that a record carried."""
    content = json.loads(detail)
    return Queue(name, TerminusDurability(content["durability"]), content["arguments"])


def as_policies_say(queue: Queue, policies: Sequence[Policy]) -> Queue:
    """The definition of a queue with what policies say of it, and nothing that they said before."""
    if not policies and POLICY not in queue.arguments:  # most often
        return queue
    return replace(queue, arguments=with_policies(queue.name, queue.arguments, policies))


def exchange_of(name: str, detail: str) -> Exchange:
    """The definition that a record carried."""
    content = json.loads(detail)
    durability = TerminusDurability(content["durability"])
    return Exchange(name, content["type"], durability, content["arguments"])


def recovered_of(state: State) -> Recovered:
    """Describe all that a store has; its entries are a live view of the state."""
    return Recovered(
        [queue_of(name, queue.detail) for name, queue in state.queues.items()],
        [exchange_of(name, detail) for name, detail in state.exchanges.items()],
        {key: json.loads(detail)["arguments"] for key, detail in state.bindings.items()},
        _LiveEntries(state.queues),
        {key: json.loads(detail) for key, detail in state.configured.items()},
        {link_key(text): json.loads(link.detail) for text, link in state.links.items()},
        {link_key(text): states_of(link) for text, link in state.links.items() if link.unsettled},
    )


class _LiveEntries(Mapping[str, Mapping[int, Entry]]):
    """Entries by queue and message id, read from the fold when they are asked for.

    Nothing is copied. Iterate it before the first call that changes something; a single entry may
    be looked up at any time on the thread that makes the calls.
    """

    def __init__(self, queues: Mapping[str, QueueState]) -> None:
        self._queues = queues

    def __getitem__(self, queue: str) -> Mapping[int, Entry]:
        """Entries of one queue, in its order."""
        return self._queues[queue].entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of queues."""
        return iter(self._queues)

    def __len__(self) -> int:
        """The number of queues."""
        return len(self._queues)


def states_of(link: LinkState) -> dict[bytes, Any]:
    """The deliveries that a link remembers, by tag, with their states."""
    return {
        tag: None if state is None else json.loads(state) for tag, state in link.unsettled.items()
    }


def what(wiring: Queue | Exchange) -> str:
    """Name a queue or exchange in an error."""
    return f"{type(wiring).__name__.lower()} {wiring.name!r}"


def operation_of(run: Run) -> dict[str, Any]:
    """Write what a branch will do with a run, without defaults: there may be thousands."""
    operation: dict[str, Any] = {"kind": run.record.kind.column}
    for name in ("queue", "message_id", "holder", "delivery_count", "detail"):
        if (value := getattr(run.record, name)) is not None:
            operation[name] = value
    if run.rows > 1:  # under another name: an earlier release would take one of them for all
        operation |= {"first_id": operation.pop("message_id"), "count": run.rows}
    headers = [_header_as_json(header) for header in run.messages]
    if headers[1:] != headers[:-1]:
        operation["headers"] = headers
    elif headers:
        operation["header"] = headers[0]
    return operation


def _header_as_json(header: MessageHeader) -> dict[str, Any]:
    fields = dict(compress(zip(_NAMES, header, strict=True), map(ne, header, _DEFAULTS)))
    if header.header is not None:
        fields["header"] = base64.b64encode(header.header).decode()
    return fields


_NAMES, _DEFAULTS = MessageHeader._fields, tuple(MessageHeader())


def header_of(fields: dict[str, Any]) -> MessageHeader:
    """Read a header that an operation has."""
    raw = fields.get("header")
    pairs = tuple((key, value) for key, value in fields.get("properties", ()))
    header = None if raw is None else base64.b64decode(raw)
    return MessageHeader(**{**fields, "header": header, "properties": pairs})


def planned_in(detail: str) -> Iterator[tuple[dict[str, Any], int, dict[str, Any] | None]]:
    """Iterate over what a branch will do: the operation, its message, and the header it brings.

    Neighbours that are alike are one operation; earlier releases wrote one for each.
    """
    for operation in json.loads(detail)["operations"]:
        first = operation.get("message_id", operation.get("first_id"))
        count = operation.get("count", 1)
        headers = operation.get("headers") or repeat(operation.get("header"), count)
        for message_id, header in zip(range(first, first + count), headers, strict=True):
            yield operation, message_id, header
