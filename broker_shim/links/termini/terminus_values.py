"""Source, target and what was granted, as values with an exact JSON form. Pure.

The JSON of a link, version 1 (stores keep it as it is; a field that says nothing is left out):

    {"version": 1, "durability": 0..2, "expiry_policy": text, "timeout_s": int,
     "source": null | {"address": text, "durability": 0..2, "expiry_policy": text,
                       "timeout_s": int, "dynamic": bool, "capabilities": [text…],
                       "distribution_mode": text, "outcomes": [text…],
                       "default_outcome": {"outcome": text, …},
                       "filters": [{"name": text, "descriptor": text | int | null, "value": …}…]},
     "target": null | {the first six},
     "queue": text}

`durability`, `expiry_policy` and `timeout_s` of the whole are those of our own end: of the source
if we are the sender. `queue` is there if the link has a queue of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

from broker_shim.durability import TerminusDurability
from broker_shim.errors import CorruptData
from broker_shim.links.termini.terminus_expiry import ExpiryPolicy
from sparkstore.core.link_records import DETAIL_VERSION, Role


class Filter(NamedTuple):
    """A filter of a source.

    Attributes:
        name: The peer's name of the filter.
        descriptor: What kind it is: a symbol or a number; None if it was not described.
        value: What to filter by, as JSON has it; its form depends on the kind.
    """

    name: str
    descriptor: str | int | None
    value: Any


@dataclass(frozen=True, slots=True)
class _Node:
    """The properties that a source and a target have in common.

    Attributes:
        address: None for a dynamic one that has none yet, or for no address at all.
        durability: What of it survives a restart.
        expiry_policy: When its time starts to run once nobody is attached.
        timeout_s: How long it then lives.
        dynamic: The broker named it.
        capabilities: The specification's, and JMS clients' (`topic`, `shared`, `global` …).
    """

    address: str | None = None
    durability: TerminusDurability = TerminusDurability.NONE
    expiry_policy: ExpiryPolicy = ExpiryPolicy.SESSION_END
    timeout_s: int = 0
    dynamic: bool = False
    capabilities: tuple[str, ...] = ()

    @property
    def lives_on(self) -> bool:
        """True if the terminus outlives its connection, for a time at least."""
        is_kept = self.durability > TerminusDurability.NONE
        return is_kept or self.expiry_policy is ExpiryPolicy.NEVER or self.timeout_s > 0

    @property
    def outlives_session(self) -> bool:
        """True if the terminus can be resumed where its session has ended."""
        return self.lives_on or self.expiry_policy is ExpiryPolicy.CONNECTION_CLOSE

    def as_json(self) -> dict[str, Any]:
        """Return fields that differ from their defaults as JSON; `from_json` reads them again."""
        shown = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                encode = _ENCODE.get(field.name)
                shown[field.name] = value if encode is None else encode(value)
        return shown

    @classmethod
    def from_json(cls, shown: Mapping[str, Any]) -> Self:
        """Make a source or target from the JSON of `as_json`.

        Raises:
            CorruptData: It is not such a JSON.
        """
        try:
            known = {
                name: _DECODE[name](value) if name in _DECODE else value
                for name, value in shown.items()
            }
            return cls(**known)
        except (AttributeError, KeyError, TypeError, ValueError) as reason:
            message = f"not a terminus: {shown!r:.200} ({reason!r})"
            raise CorruptData(message) from reason


@dataclass(frozen=True, slots=True)
class Source(_Node):
    """The source of a link's messages.

    Attributes:
        distribution_mode: `move` or `copy`; None is `move`.
        outcomes: Those that the receiver may use; () is any.
        default_outcome: JSON: of a delivery that is settled without one; None is none.
        filters: A message comes over the link only if each of these lets it.
    """

    distribution_mode: str | None = None
    outcomes: tuple[str, ...] = ()
    default_outcome: Mapping[str, Any] | None = None
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class Target(_Node):
    """The target of a link's messages."""


@dataclass(frozen=True, slots=True)
class LinkTerms:
    """The source and the target of a link, as granted.

    Attributes:
        role: Whether our end sends or receives.
        source: None if there is none.
        target: None if there is none.
        queue: One that is the link's own and ends with it: a subscription's, a dynamic node's.
    """

    role: Role
    source: Source | None
    target: Target | None
    queue: str | None = None

    @property
    def own(self) -> Source | Target:
        """Our end: what is kept here, and expires."""
        own = self.source if self.role is Role.SENDER else self.target
        return _NO_SOURCE if own is None else own

    @property
    def durability(self) -> TerminusDurability:
        """Return the durability of our own end."""
        return self.own.durability

    def as_json(self) -> dict[str, Any]:
        """Return the link's JSON, as the module describes it."""
        shown = {
            "version": DETAIL_VERSION,
            "source": self.source and self.source.as_json(),
            "target": self.target and self.target.as_json(),
            "durability": int(self.own.durability),
            "expiry_policy": str(self.own.expiry_policy),
            "timeout_s": self.own.timeout_s,
        }
        return shown if self.queue is None else shown | {"queue": self.queue}

    @classmethod
    def from_json(cls, role: str, shown: Mapping[str, Any]) -> Self:
        """Make the terms of a link from the JSON of `as_json`.

        Raises:
            CorruptData: It is not such a JSON, or is from a newer version.
        """
        try:
            version, source, target = shown["version"], shown["source"], shown["target"]
            if version != DETAIL_VERSION:
                message = f"a link of version {version}, this sparkstore knows {DETAIL_VERSION}"
                raise CorruptData(message)
            queue = shown.get("queue")
            return cls(
                Role(role),
                None if source is None else Source.from_json(source),
                None if target is None else Target.from_json(target),
                None if queue is None else _of_type(str)(queue),
            )
        except (KeyError, TypeError, ValueError) as reason:
            message = f"not a link: {shown!r:.200} ({reason!r})"
            raise CorruptData(message) from reason


_NO_SOURCE = Source()

_ENCODE: Mapping[str, Any] = {
    "durability": int,
    "expiry_policy": str,
    "capabilities": list,
    "outcomes": list,
    "default_outcome": dict,
    "filters": lambda filters: [named._asdict() for named in filters],
}


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise TypeError("a list of texts is expected")
    return tuple(value)


def _of_type(kind: type) -> Any:
    def checked(value: Any) -> Any:
        if type(value) is not kind:
            message = f"{kind.__name__} expected, not {value!r:.40}"
            raise TypeError(message)
        return value

    return checked


def _filter(shown: Mapping[str, Any]) -> Filter:
    descriptor = shown["descriptor"]
    if isinstance(descriptor, bool) or not isinstance(descriptor, str | int | None):
        message = f"a text or a number expected, not {descriptor!r:.40}"
        raise TypeError(message)
    return Filter(_of_type(str)(shown["name"]), descriptor, shown["value"])


_DECODE: Mapping[str, Any] = {
    "address": _of_type(str),
    "durability": TerminusDurability,
    "expiry_policy": ExpiryPolicy,
    "timeout_s": _of_type(int),
    "dynamic": _of_type(bool),
    "capabilities": _texts,
    "distribution_mode": _of_type(str),
    "outcomes": _texts,
    "default_outcome": _of_type(dict),
    "filters": lambda filters: tuple(map(_filter, filters)),
}
