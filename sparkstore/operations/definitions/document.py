"""The document of definitions: what a state has, as JSON, and as the orders that make it again.

    {"sparkstore_definitions": 1,
     "exchanges": [{"name": …, "type": …, "durability": …, "arguments": {…}}],
     "queues":    [{"name": …, "durability": …, "arguments": {…}}],
     "bindings":  [{"exchange": …, "queue": …, "key": …, "arguments": {…}}],
     "policies":  [{"name": …, "match": …, "priority": …, "arguments": {…}}]}

The exchanges of every broker, queues that belong to a link, and what ends with its broker, are no
definitions. Arguments are a queue's own: those that a policy gives come again with the policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sparkstore.core.fold import State
from sparkstore.core.policies import policies_of
from sparkstore.core.queue_arguments import arguments_of, own_arguments_of
from sparkstore.core.queue_names import is_reserved
from sparkstore.operations.administration import DEFAULT_EXCHANGES, DURABILITIES, AdminAction, Order
from sparkstore.operations.definitions.drafts import (
    Definitions,
    Draft,
    PlacedOrder,
    set_policy,
)
from sparkstore.operations.queue_alteration import durability_of
from sparkstore.operations.root_at_rest import own_link_text

MARK = "sparkstore_definitions"
_VERSION = 1
_PARTS = (MARK, "exchanges", "queues", "bindings", "policies")
_KEPT = DURABILITIES[1:]
_QUEUE = {"name": str, "durability": str, "arguments": dict}
_EXCHANGE = {**_QUEUE, "type": str}
_BINDING = {"exchange": str, "queue": str, "key": str, "arguments": dict}
_POLICY = {"name": str, "match": str, "priority": int, "arguments": dict}


def document_of(state: State) -> tuple[dict[str, Any], list[str]]:
    """Return the definitions of a state and the queues that are none, sorted by name.

    Policies come in their own order: those that count most first.
    """
    left = [name for name in state.queues if not _is_definition(state, name)]
    queues = sorted(state.queues.keys() - set(left))
    document: dict[str, Any] = {
        MARK: _VERSION,
        "exchanges": [
            {"name": name, "type": json.loads(detail).get("type", ""), **_terms(detail)}
            for name, detail in sorted(state.exchanges.items())
            if durability_of(detail) and name not in DEFAULT_EXCHANGES
        ],
        "queues": [{"name": name, **_terms(state.queues[name].detail)} for name in queues],
        "bindings": [
            {
                "exchange": key.exchange,
                "queue": key.queue,
                "key": key.binding_key,
                "arguments": arguments_of(detail),
            }
            for key, detail in sorted(state.bindings.items())
            if key.queue in state.queues and key.queue not in left
        ],
        "policies": [{"name": one.name, **one.detail} for one in policies_of(state.configured)],
    }
    return document, sorted(left)


def _is_definition(state: State, name: str) -> bool:
    if is_reserved(name) or not durability_of(state.queues[name].detail):
        return False
    return own_link_text(state, name) is None


def _terms(detail: str) -> dict[str, Any]:
    own = own_arguments_of(detail)
    return {"durability": DURABILITIES[durability_of(detail)], "arguments": own}


def read(document: Mapping[str, Any]) -> Definitions:
    """Read our own document."""
    draft = Draft()
    for name in document:
        if name not in _PARTS:
            draft.fail(str(name), f"is no part of a document: say {', '.join(_PARTS)}")
    if document.get(MARK) != _VERSION:
        draft.fail(MARK, f"is {document.get(MARK)!r:.40}: this version reads {_VERSION}")
    for place, entry in draft.entries(document, "exchanges", _EXCHANGE, is_ours=True):
        order = Order(
            AdminAction.CREATE_EXCHANGE, exchange=entry.get("name", ""), type=entry.get("type", "")
        )
        _add(draft, draft.exchanges, place, entry, order)
    for place, entry in draft.entries(document, "queues", _QUEUE, is_ours=True):
        order = Order(AdminAction.CREATE_QUEUE, queue=entry.get("name", ""))
        _add(draft, draft.queues, place, entry, order)
    for place, entry in draft.entries(document, "bindings", _BINDING, is_ours=True):
        order = Order(
            AdminAction.ADD_BINDING,
            entry.get("queue", ""),
            entry.get("exchange", ""),
            entry.get("key", ""),
            arguments=entry.get("arguments", {}),
        )
        draft.bindings.append(PlacedOrder(place, order))
    for place, entry in draft.entries(document, "policies", _POLICY, is_ours=True):
        draft.policies.append(PlacedOrder(place, set_policy(**entry)))
    return draft.done()


def _add(
    draft: Draft, to: list[PlacedOrder], place: str, entry: dict[str, Any], order: Order
) -> None:
    durability = entry.get("durability", _KEPT[-1])
    if durability not in _KEPT:
        draft.fail(place, f"durability is {durability!r:.40}: say {' or '.join(_KEPT)}")
        return
    given, number = entry.get("arguments", {}), DURABILITIES.index(durability)
    to.append(PlacedOrder(place, order._replace(arguments=given, durability=number)))
