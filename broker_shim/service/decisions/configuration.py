"""Configured objects: what a broker wants kept of its own configuration, and the service of its."""

from __future__ import annotations

from broker_shim.errors import InvalidRequest
from broker_shim.service.decisions.arrivals import object_of
from sparkstore.core import records
from sparkstore.core.records import Kind, Record
from sparkstore.core.state_machine.arguments import check_name
from sparkstore.core.state_machine.state_machine import StoreStateMachine
from sparkstore.core.state_machine.transaction import RecordStep

OWN_CATEGORY = "sparkstore."
"""Configured objects of categories that begin so are written by the service alone."""


def configuration(
    machine: StoreStateMachine, record: Record, there: dict[tuple[str, str], bool]
) -> list[RecordStep]:
    """Put or remove a configured object; `there` says what steps before it did to others."""
    category, key = record.exchange or "", record.binding_key or ""
    for name in (category, key):
        check_name(name)
    if category.startswith(OWN_CATEGORY):
        message = f"category {category!r} is the service's own"
        raise InvalidRequest(message)
    was_there = there.get((category, key), (category, key) in machine.state.configured)
    there[category, key] = record.kind is Kind.CONFIGURED
    if record.kind is Kind.CONFIGURED:
        object_of(record.detail or "")
        made = records.configured(machine.now_us(), category, key, record.detail or "")
    elif was_there:
        made = records.unconfigured(machine.now_us(), category, key)
    else:
        return []
    return [RecordStep(made, is_kept=True)]
