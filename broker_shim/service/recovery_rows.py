"""The content of the store, for a member that starts.

In columns, not objects, by the reads RECOVER and ENTRIES.

    RECOVER   ANSWER [read, is_last, section, …], in this order; int64 and int32 are big-endian
      "wiring"      rows: [type, name or [exchange, queue, binding_key], detail]
      "configured"  rows: [category, key, detail]
      "branches"    rows: [xid, [[queue, message_id], …], [[queue, message_id], …]]: what one in
                    doubt puts on queues, and takes off them; a long one comes in several rows
      "messages"    of those on a queue, or staged with their header and not enqueued yet:
                    ids (int64 each, rising), header_lengths (int32 each, -1: none), headers
                    (concatenated), body_bytes (int64 each), protocols (one for all, or one each)
      "entries"     queue, ids (int64 each, rising), acquired [[message_id, holder], …], counts
                    [[message_id, delivery_count], …]
      "end"         next_message_id; is_last is true
    ENTRIES   as RECOVER, but instead of messages and entries
      "links"       rows: [link, detail]
      "deliveries"  rows: [link, tag, detail or nil]: of the links, unsettled
                    and then, in the order of each queue
      "queue"       name, then int64 each: ids, positions, ats, priorities, expires_at (-1: never),
                    message_bytes; then acquired and counts as above, and annotations
                    [[message_id, detail], …]

A holder of the member that asks is told without the member's name before it.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from broker_shim.store.delta import DeltaMessageStore
from sparkstore.core.fold import Entries, Entry, State
from sparkstore.core.holders import OWN_CATEGORY
from sparkstore.core.link_records import MEMBER
from sparkstore.core.records import Kind
from sparkstore.core.state_machine.definitions import as_json, planned_in
from sparkstore.core.xids import xid_bytes, xid_of
from sparkstore.recovery.message_headers import Headers, message_headers

PART = 10_000
"""Messages or entries in one answer."""
_ROWS = 5_000

Section = tuple[Any, ...]


def entries(
    store: DeltaMessageStore, member: str, *, has_entries: bool = True
) -> Iterator[Section]:
    """Sections of ENTRIES: one moment of the store."""
    with store.look() as machine:
        state = machine.state
        sections = [*_definitions(state), *_links(state)]
        sections += [
            ("queue", name, *_columns(part), *_held(part, member), _annotated(part))
            for name, queue in state.queues.items()
            for part in _parts(queue.entries.items() if has_entries else ())
        ]
    return iter([*sections, ("end", 0)])


def recovered(store: DeltaMessageStore, member: str) -> Iterator[Section]:
    """Sections of RECOVER: one moment of the store; headers are read from the tables after it.

    Those of a log that has no room now are waited for: what a start misses here is lost to it.
    """
    with store.look() as machine:
        state = machine.state
        sections = [*_definitions(state), *_branches(state)]
        queued: list[Section] = [
            ("entries", name, _int64(ids), *_held(part, member))
            for name, queue in state.queues.items()
            for ids, part in _rising(queue.entries)
        ]
        wanted = array("q", state.messages.rising())
        if state.staged:
            wanted = array("q", sorted({*wanted, *state.staged}))
        volatile = {number: message.header for number, message in machine.volatile.items()}
        next_id = state.next_message_id
    yield from sections
    store.catch_up()
    for headers in message_headers(store.root, wanted, volatile, PART):
        yield ("messages", *_header_columns(headers))
    yield from queued
    yield ("end", next_id)


def _definitions(state: State) -> Iterator[Section]:
    wiring: list[Section] = [("queue", name, q.detail) for name, q in state.queues.items()]
    wiring += [("exchange", name, detail) for name, detail in state.exchanges.items()]
    wiring += [("binding", [*key], detail) for key, detail in state.bindings.items()]
    for start in range(0, len(wiring), _ROWS):
        yield ("wiring", wiring[start : start + _ROWS])
    configured = [
        (*key, detail)
        for key, detail in state.configured.items()
        if not key[0].startswith(OWN_CATEGORY)
    ]
    for start in range(0, len(configured), _ROWS):
        yield ("configured", configured[start : start + _ROWS])


def _branches(state: State) -> Iterator[Section]:
    for key, detail in state.prepared.items():
        packed = xid_bytes(xid_of(key))
        rows = ((row["kind"], (row["queue"], number)) for row, number, _ in planned_in(detail))
        while part := [*islice(rows, _ROWS)]:
            puts, takes = (
                [place for its, place in part if its == kind.column]
                for kind in (Kind.ENQUEUED, Kind.DEQUEUED)
            )
            yield ("branches", [(packed, puts, takes)])


def _links(state: State) -> Iterator[Section]:
    links = [(text, shown_link(link.detail)) for text, link in state.links.items()]
    for start in range(0, len(links), _ROWS):
        yield ("links", links[start : start + _ROWS])
    deliveries = (
        (text, tag, state_told)
        for text, link in state.links.items()
        for tag, state_told in link.unsettled.items()
    )
    while part := [*islice(deliveries, _ROWS)]:
        yield ("deliveries", part)


def shown_link(detail: str) -> str:
    """Make the link that ENTRIES and LINK tell: as it was attached, without where."""
    link = json.loads(detail)
    return as_json({name: value for name, value in link.items() if name != MEMBER})


def _parts(items: Iterable[tuple[int, Entry]]) -> Iterator[list[tuple[int, Entry]]]:
    walk = iter(items)
    while part := [*islice(walk, PART)]:
        yield part


def _rising(entries: Entries) -> Iterator[tuple[list[int], list[tuple[int, Entry]]]]:
    """Ids of a queue by their order, in parts, each with the entries that have more to tell."""
    ids, marked = sorted(entries), dict(entries.marked())
    for start in range(0, len(ids), PART):
        part = ids[start : start + PART]
        yield part, [(number, marked[number]) for number in part if number in marked]


def _columns(part: Sequence[tuple[int, Entry]]) -> Section:
    rows = [entry for _, entry in part]
    return (
        _int64(message_id for message_id, _ in part),
        _int64(entry.position for entry in rows),
        _int64(entry.at for entry in rows),
        _int64(entry.priority for entry in rows),
        _int64(-1 if entry.expires_at is None else entry.expires_at for entry in rows),
        _int64(entry.message_bytes for entry in rows),
    )


def _held(part: Sequence[tuple[int, Entry]], member: str) -> Section:
    prefix = member + "/"
    acquired = [
        (message_id, entry.acquired_by.removeprefix(prefix))
        for message_id, entry in part
        if entry.acquired_by is not None
    ]
    counts = [(message_id, e.delivery_count) for message_id, e in part if e.delivery_count]
    return acquired, counts


def _annotated(part: Sequence[tuple[int, Entry]]) -> list[tuple[int, str]]:
    return [(message_id, entry.detail) for message_id, entry in part if entry.detail is not None]


def _header_columns(headers: Headers) -> Section:
    return (
        _big_endian(headers.message_ids),
        _big_endian(headers.header_lengths),
        headers.headers,
        _big_endian(headers.body_bytes),
        headers.protocols,
    )


def _int64(values: Iterable[int]) -> bytes:
    return _big_endian(array("q", values))


def _big_endian(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        values.byteswap()
    return values.tobytes()
