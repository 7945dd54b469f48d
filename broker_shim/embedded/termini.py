"""Source and target as the protocol has them ↔ as the links' side keeps them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker_shim.amqp_1_0 import composites as amqp
from broker_shim.amqp_1_0.primitives import Symbol, ULong
from broker_shim.durability import TerminusDurability
from broker_shim.links import ExpiryPolicy, Filter, Source, Target
from broker_shim.protocol_1_0.values import Described

_HONOURED = frozenset({"queue", "topic", "temporary-queue", "temporary-topic", "shared", "global"})
"""Capabilities that a JMS client asks of a terminus; others are left out of the answer."""


def granted_source(
    remote: amqp.Source,
    address: str | None,
    durability: TerminusDurability,
    filter_set: dict[Any, Any] | None,
) -> Source:
    """What is granted of a source that was asked for.

    Args:
        remote: As the peer asked.
        address: Of the node.
        durability: As granted.
        filter_set: Of it, what is honoured.
    """
    return Source(
        address,
        durability,
        ExpiryPolicy(remote.expiry_policy),
        remote.timeout,
        dynamic=remote.dynamic,
        capabilities=_honoured(remote.capabilities),
        distribution_mode=remote.distribution_mode,
        filters=tuple(_filter(name, value) for name, value in (filter_set or {}).items()),
    )


def granted_target(
    remote: amqp.Target, address: str | None, durability: TerminusDurability
) -> Target:
    """What is granted of a target; as `granted_source`."""
    return Target(
        address,
        durability,
        ExpiryPolicy(remote.expiry_policy),
        remote.timeout,
        dynamic=remote.dynamic,
        capabilities=_honoured(remote.capabilities),
    )


def peers_source(remote: Any) -> Source | None:
    """The source of a link on which we receive: the peer's affair."""
    return Source(_text(remote.address)) if isinstance(remote, amqp.Source) else None


def peers_target(remote: Any) -> Target | None:
    """The target of a link on which we send: the peer's affair."""
    return Target(_text(remote.address)) if isinstance(remote, amqp.Target) else None


def as_source(value: Source | None) -> amqp.Source | None:
    """For an attach."""
    if value is None:
        return None
    return amqp.Source(
        value.address,
        int(value.durability),
        str(value.expiry_policy),
        value.timeout_s,
        value.dynamic,
        distribution_mode=value.distribution_mode,
        filter={Symbol(each.name): _filter_value(each) for each in value.filters} or None,
        capabilities=value.capabilities or None,
    )


def as_target(value: Target | None) -> amqp.Target | None:
    """For an attach."""
    if value is None:
        return None
    return amqp.Target(
        value.address,
        int(value.durability),
        str(value.expiry_policy),
        value.timeout_s,
        value.dynamic,
        capabilities=value.capabilities or None,
    )


def filter_set_of(value: Source) -> dict[Any, Any]:
    """The filters of a source that was kept, as `read_filters` takes them."""
    return {each.name: _filter_value(each) for each in value.filters}


def _honoured(capabilities: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(str(each) for each in capabilities or () if each in _HONOURED)


def _text(address: Any) -> str | None:
    return address if address is None else str(address)


def _filter(name: Any, value: Any) -> Filter:
    if not isinstance(value, Described):
        return Filter(str(name), None, value)
    descriptor = value.descriptor
    plain = str(descriptor) if isinstance(descriptor, str) else int(descriptor)
    return Filter(str(name), plain, value.value)


def _filter_value(kept: Filter) -> Any:
    if kept.descriptor is None:
        return kept.value
    is_text = isinstance(kept.descriptor, str)
    descriptor = Symbol(kept.descriptor) if is_text else ULong(kept.descriptor)
    return Described(descriptor, kept.value)
