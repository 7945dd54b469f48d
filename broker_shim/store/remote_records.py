"""Records about wiring as a member sends them: the service sets the time."""

from __future__ import annotations

from broker_shim.store.interface import BindingKey, Exchange, Queue
from sparkstore.records import Kind, Record


def definition_record(kind: Kind, wiring: Queue | Exchange, detail: str | None) -> Record:
    """`created`, `altered` or `destroyed`."""
    if isinstance(wiring, Queue):
        return Record(kind, 0, wiring.name, detail=detail)
    return Record(kind, 0, exchange=wiring.name, detail=detail)


def binding_record(kind: Kind, key: BindingKey, detail: str | None) -> Record:
    """`bound` or `unbound`."""
    exchange, queue, binding_key = key
    return Record(kind, 0, queue, exchange=exchange, binding_key=binding_key, detail=detail)
