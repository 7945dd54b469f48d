"""The answers of ENTRIES, made into `Recovered`. Pure."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from broker_shim.store.interface import ExchangeBindingKey, Recovered
from sparkstore.core.entries import Entries
from sparkstore.core.link_records import LinkKey, link_key
from sparkstore.core.state_machine.definitions import exchange_of, queue_of


def recovered_of(sections: Iterable[tuple[Any, ...]]) -> Recovered:
    """What the store service told; see `broker_shim.service.recovery`."""
    found = Recovered([], [], {}, {}, {}, {}, {})
    entries: dict[str, Entries] = {}
    for section, *columns in sections:
        if section == "wiring":
            _wire(found, entries, columns[0])
        elif section == "configured":
            found.configured.update({(c, key): json.loads(detail) for c, key, detail in columns[0]})
        elif section == "links":
            found.links.update({link_key(text): json.loads(detail) for text, detail in columns[0]})
        elif section == "deliveries":
            _add_deliveries(found, columns[0])
        elif section == "queue":
            _add_entries(entries.setdefault(columns[0], Entries()), *columns[1:])
    return replace(found, entries=entries)


def _wire(
    found: Recovered,
    entries: dict[str, Entries],
    rows: Iterable[tuple[str, Any, str]],
) -> None:
    for kind, name, detail in rows:
        if kind == "queue":
            found.queues.append(queue_of(name, detail))
            entries[name] = Entries()
        elif kind == "exchange":
            found.exchanges.append(exchange_of(name, detail))
        else:
            found.bindings[ExchangeBindingKey(*name)] = json.loads(detail)["arguments"]


def _add_deliveries(found: Recovered, rows: Iterable[tuple[str, bytes, str | None]]) -> None:
    unsettled: dict[LinkKey, dict[bytes, Any]] = {}
    for text, tag, state in rows:
        unsettled.setdefault(link_key(text), {})[tag] = None if state is None else json.loads(state)
    for key, states in unsettled.items():
        found.unsettled[key] = {**found.unsettled.get(key, {}), **states}


def _add_entries(entries: Entries, *columns: Any) -> None:
    ids, positions, ats, priorities, expires_at, message_bytes = map(_int64, columns[:6])
    acquired, counts, annotated = map(dict, columns[6:])
    ends = [None if expires < 0 else expires for expires in expires_at]
    holders = [acquired.get(message_id) for message_id in ids]
    failed = [counts.get(message_id, 0) for message_id in ids]
    told = [annotated.get(message_id) for message_id in ids]
    entries.extend(ids, (positions, ats, priorities, ends, message_bytes, holders, failed, told))


def _int64(packed: bytes) -> array[int]:
    values = array("q")
    values.frombytes(packed)
    if sys.byteorder == "little":
        values.byteswap()
    return values
