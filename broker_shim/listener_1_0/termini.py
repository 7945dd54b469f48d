"""Source and target as the protocol has them ↔ as the links' side keeps them. Pure.

The filters on a source (AMQP 1.0 section 3.5.8) are a map: a name of the client's choice → a
described value, whose descriptor tells the type. We know two,
`apache.org:selector-filter:string`, which Qpid JMS names `jms-selector`, and
`apache.org:no-local-filter:list`, which is for subscriptions. The answer holds what is honoured, as
it came: a filter that is missing there does not filter, and the client is to decide whether it goes
on (section 3.5.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_shim.amqp_1_0 import composites as amqp
from broker_shim.amqp_1_0.definitions import StdDistMode
from broker_shim.amqp_1_0.primitives import Symbol, ULong
from broker_shim.durability import TerminusDurability
from broker_shim.links import ExpiryPolicy, Filter, Source, Target
from broker_shim.protocol_1_0.codec.values import Array, Described
from broker_shim.selectors import InvalidSelector, Selector, parse

_OUTCOMES = tuple(
    kind.DESCRIPTOR for kind in (amqp.Accepted, amqp.Rejected, amqp.Released, amqp.Modified)
)
_LIFETIME, _MODES = "lifetime-policy", "supported-dist-modes"
_LIFETIMES = frozenset(
    name
    for kind in amqp.COMPOSITES.values()
    if kind.NAME in amqp.PROVIDERS["lifetime-policy"]
    for name in (kind.CODE, kind.DESCRIPTOR)
)


def granted_source(
    remote: amqp.Source,
    address: str | None,
    durability: TerminusDurability,
    filter_set: dict[Any, Any] | None,
    capabilities: tuple[str, ...] = (),
) -> Source:
    """Make the source that is granted for the one that was asked for.

    Args:
        remote: As the peer asked.
        address: Of the node.
        durability: The durability that is granted.
        filter_set: Of it, what is honoured.
        capabilities: Those that hold (`attach.capabilities`).
    """
    return Source(
        *_granted(remote, address, durability),
        capabilities=capabilities,
        distribution_mode=_mode(remote.distribution_mode),
        filters=tuple(_filter(name, value) for name, value in (filter_set or {}).items()),
    )


def granted_target(
    remote: amqp.Target,
    address: str | None,
    durability: TerminusDurability,
    capabilities: tuple[str, ...] = (),
) -> Target:
    """Make the target that is granted for the one that was asked for."""
    return Target(*_granted(remote, address, durability), capabilities=capabilities)


def _granted(
    remote: amqp.Source | amqp.Target, address: str | None, durability: TerminusDurability
) -> tuple[str | None, TerminusDurability, ExpiryPolicy, int, bool]:
    """The first fields of a source or a target that is granted."""
    return address, durability, ExpiryPolicy(remote.expiry_policy), remote.timeout, remote.dynamic


def peers_source(remote: Any) -> Source | None:
    """The source of a link on which we receive: the peer's affair."""
    return Source(_text(remote.address)) if isinstance(remote, amqp.Source) else None


def peers_target(remote: Any) -> Target | None:
    """The target of a link on which we send: the peer's affair."""
    return Target(_text(remote.address)) if isinstance(remote, amqp.Target) else None


def served_source(value: Source, remote: amqp.Source) -> amqp.Source | None:
    """A source of ours, for an attach: with the outcomes that its receiver may choose (3.5.3).

    Args:
        value: The source that is granted.
        remote: As asked; of the outcomes that it names, those that exist.
    """
    source = as_source(value)
    if source is not None:
        asked = remote.outcomes or _OUTCOMES
        source.outcomes = tuple(kind for kind in _OUTCOMES if kind in asked) or _OUTCOMES
        source.default_outcome = default_outcome(remote)
    return source


def default_outcome(remote: amqp.Source | None) -> amqp.Released | amqp.Modified:
    """Choose the outcome of a delivery without one, whose link is gone, as its receiver asked.

    Those two are honoured: nobody is to lose a message that it never decided about.
    """
    asked = None if remote is None else remote.default_outcome
    if isinstance(asked, amqp.Modified) and asked.delivery_failed is True:
        return amqp.Modified(delivery_failed=True)
    return amqp.Released()


def wrong_with(node: amqp.Source | amqp.Target) -> str | None:
    """Why the properties of a node cannot be as asked (3.5.9); None if they can.

    Those of a node that is not dynamic must not be set (3.5.3), and mean nothing: brokers read past
    them, so clients that set them are about, and are served.
    """
    properties = (node.dynamic and node.dynamic_node_properties) or {}
    if not all(isinstance(name, Symbol) for name in properties):
        return "the properties of a node have symbols as keys"
    lifetime = properties.get(Symbol(_LIFETIME))
    if lifetime is not None and _descriptor(lifetime) not in _LIFETIMES:
        return f"{_LIFETIME} is none of {', '.join(amqp.PROVIDERS[_LIFETIME])}"
    modes = properties.get(Symbol(_MODES))
    is_array = isinstance(modes, Array) and modes.kind == "symbol"
    if not (modes is None or is_array or isinstance(modes, Symbol)):
        return f"{_MODES} is a symbol, or an array of them"
    return None


def as_source(value: Source | None) -> amqp.Source | None:
    """Write a kept source as the protocol's, for an attach."""
    if value is None:
        return None
    return amqp.Source(
        *_written(value),
        distribution_mode=value.distribution_mode,
        filter={Symbol(named.name): _filter_value(named) for named in value.filters} or None,
        capabilities=value.capabilities or None,
    )


def as_target(value: Target | None) -> amqp.Target | None:
    """Write a kept target as the protocol's, for an attach."""
    if value is None:
        return None
    return amqp.Target(*_written(value), capabilities=value.capabilities or None)


def _written(value: Source | Target) -> tuple[str | None, int, str, int, bool, Any]:
    """The first fields of a source or a target; a dynamic node ends with its link."""
    lifetime = {Symbol(_LIFETIME): amqp.DeleteOnClose()} if value.dynamic else None
    policy = str(value.expiry_policy)
    return value.address, int(value.durability), policy, value.timeout_s, value.dynamic, lifetime


def filter_set_of(value: Source) -> dict[Any, Any]:
    """The filters of a source that was kept, as `read_filters` takes them."""
    return {named.name: _filter_value(named) for named in value.filters}


def _mode(asked: Any) -> str:
    """A sender that knows both has to say which it is (3.5.3)."""
    return str(StdDistMode.COPY if asked == StdDistMode.COPY else StdDistMode.MOVE)


def _descriptor(value: Any) -> Any:
    return value.descriptor if isinstance(value, Described) else getattr(value, "CODE", None)


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


_SELECTOR_NAME = "apache.org:selector-filter:string"
_SELECTOR_CODE = 0x0000468C00000004
_NO_LOCAL = ("apache.org:no-local-filter:list", 0x0000468C00000003)
_PLAIN_NAMES = frozenset({_SELECTOR_NAME, "jms-selector"})
"""A filter of such a name may be a bare text, as old clients send it."""


class Filters(NamedTuple):
    """The filters of a link's source, as far as we know them.

    Attributes:
        text: Of the selector; None if there is none, or an empty one.
        answer: The filter set to answer with; None for none.
        no_local: What more to answer with where the client's own messages are kept out.
        selector: What it selects by, once that is compiled; None if it takes all.
    """

    text: str | None = None
    answer: dict[Any, Any] | None = None
    no_local: dict[Any, Any] | None = None
    selector: Selector | None = None

    @property
    def of_subscription(self) -> dict[Any, Any] | None:
        """The filter set to answer a subscription with, which hears no messages of its own."""
        return {**(self.answer or {}), **(self.no_local or {})} or None


def honoured_filters(filter_set: Mapping[Any, Any] | None) -> Filters:
    """The filters that are honoured, with the selector not compiled.

    Raises:
        InvalidSelector: The selector is no text, or there are two of them.
    """
    texts = [
        (name, value, text)
        for name, value in (filter_set or {}).items()
        if (text := _selector_text(name, value)) is not None
    ]
    no_local = _no_local(filter_set or {})
    if not texts:
        return Filters(no_local=no_local)
    if len(texts) > 1:
        raise InvalidSelector("a source takes one selector, not several")
    (name, value, text) = texts[0]
    return Filters(text if text.strip() else None, {name: value}, no_local)


def read_filters(filter_set: Mapping[Any, Any] | None) -> Filters:
    """Read the filters of a link that was kept, in one go, whatever today's limits are.

    Raises:
        InvalidSelector: The selector is refused, or there are two of them.
    """
    filters = honoured_filters(filter_set)
    text = filters.text
    return filters._replace(selector=None if text is None else parse(text, is_kept=True))


def keeps_out_local(source: Source | None) -> bool:
    """True if a source that was granted is one to which its client's own messages do not go."""
    return source is not None and any(named.descriptor in _NO_LOCAL for named in source.filters)


def _no_local(filter_set: Mapping[Any, Any]) -> dict[Any, Any] | None:
    """The filter that keeps a client's own messages out, as it came; None: there is none.

    Its value says nothing: clients send a list, or a text; what is kept of another is a list.
    """
    for name, value in filter_set.items():
        if isinstance(value, Described) and value.descriptor in _NO_LOCAL:
            own_filter = value.value if isinstance(value.value, str) else []
            return {name: Described(value.descriptor, own_filter)}
    return None


def _selector_text(name: object, value: object) -> str | None:
    """The text of a selector filter; None if it is another filter."""
    if isinstance(value, Described):
        if value.descriptor not in (_SELECTOR_NAME, _SELECTOR_CODE):
            return None
        if not isinstance(value.value, str):
            raise InvalidSelector("a selector that is no text")
        return value.value
    return value if name in _PLAIN_NAMES and isinstance(value, str) else None
