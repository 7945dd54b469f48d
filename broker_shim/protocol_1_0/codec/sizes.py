"""Count the memory that a peer's values take, and keep only the parts that are needed. Pure.

A byte on the wire may become seventy here: an item of a list is a byte and an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from sys import getsizeof
from typing import Any

from broker_shim.amqp_1_0.composites import (
    Declared,
    Error,
    Modified,
    Rejected,
    TransactionalState,
)

MOST_STATE_BYTES = 4_096
"""Of what is kept of a delivery's state, in memory."""
_MOST_DESCRIPTION = 1_000
_MOST_ID_BYTES = 64
_POINTER_BYTES = 8
_TXN_ID = "txn-id"


def decoded_bytes(value: Any) -> int:
    """Return the bytes that a value takes at most: what is shared counts each time."""
    total, left = 0, [value]
    while left:
        item = left.pop()
        total += _POINTER_BYTES + getsizeof(item)
        if isinstance(item, dict):
            left += item.keys()
            left += item.values()
        elif isinstance(item, list | tuple):
            left += item
        else:
            left += [getattr(item, name) for name in _names(item.__class__)]
    return total


@cache
def _names(kind: type) -> tuple[str, ...]:
    """The fields of a class of ours; none of any other."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def kept_state(state: Any) -> Any:
    """A delivery's state without what a peer may have put into it beyond what anybody reads.

    There may be as many as there are deliveries: an error keeps its condition and the beginning of
    its description, `modified` its annotations if they are few. An id that is too long is nobody's.
    """
    if isinstance(state, Rejected) and state.error is not None:
        return Rejected(_kept_error(state.error))
    if isinstance(state, Modified) and decoded_bytes(state.message_annotations) > MOST_STATE_BYTES:
        return Modified(state.delivery_failed, state.undeliverable_here)
    if isinstance(state, TransactionalState):
        return TransactionalState(_kept_id(state.txn_id), kept_state(state.outcome))
    if isinstance(state, Declared):
        return Declared(_kept_id(state.txn_id))
    return state


def kept_properties(properties: Mapping[Any, Any] | None) -> dict[Any, Any] | None:
    """Keep only the transaction of a flow's properties, as any link may send them repeatedly."""
    if properties is None or _TXN_ID not in properties:
        return None
    txn_id = properties[_TXN_ID]
    return {_TXN_ID: None if txn_id is None else _kept_id(txn_id)}


def _kept_error(error: Error) -> Error:
    description = None if error.description is None else error.description[:_MOST_DESCRIPTION]
    return Error(error.condition[:_MOST_DESCRIPTION], description)


def _kept_id(txn_id: Any) -> Any:
    return txn_id if isinstance(txn_id, bytes) and len(txn_id) <= _MOST_ID_BYTES else b""
