"""Read the `broker.xml` of Apache ActiveMQ Artemis: addresses, queues, and settings by pattern.

An address setting is no object here: each queue gets the arguments that the settings of its address
come to, the more specific pattern over the less specific, as Artemis merges them. Source: "Address
Settings" and "Address Model" of Artemis' documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as Xml

from sparkstore.errors import InvalidRequest
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.operations.definitions.drafts import Definitions, Draft, PlacedOrder

_SILENT = {
    "name", "persistence-enabled", "journal-type", "paging-directory", "bindings-directory",
    "journal-directory", "large-messages-directory",
}  # fmt: skip
_NO_LIMIT = -1
AddressSettings = list[tuple[str, dict[str, str]]]
"""Patterns of addresses, each with what it says by name."""
_FULL = {"FAIL": "reject"}
_OF_QUEUE = {"exclusive": "default-exclusive-queue", "ring-size": "default-ring-size"}
"""Attributes of a queue, each with the setting of addresses that says the same."""
_USUAL = {("max-consumers", "-1"), ("last-value", "false")}
_USUAL_GROWTH = 10
"""The longest delay, if `max-redelivery-delay` is not set, by the first one."""


def read(text: str) -> Definitions:
    """Read the broker.xml of a broker.

    Raises:
        InvalidRequest: It is no XML, or declares a document type, which could name other files.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InvalidRequest("a document type or an entity in it is refused: take them out")
    try:
        top = Xml.fromstring(text)  # noqa: S314  # without a document type there is no entity
    except Xml.ParseError as reason:
        raise InvalidRequest(f"no XML: {reason}") from reason
    core = top if _name(top) == "core" else _child(top, "core")
    draft = Draft()
    if core is None:
        draft.fail(_name(top), "has no element core: give the broker.xml")
        return draft.done()
    settings = [*_settings(core)]
    for part in core:
        if _name(part) == "addresses":
            for address in part:
                _address(draft, address, settings)
        elif _name(part) != "address-settings" and _name(part) not in _SILENT:
            draft.leave(f"core/{_name(part)}", "is no definition of a queue: see docs/settings.md")
    return draft.done()


def _settings(core: Xml.Element) -> Iterator[tuple[str, dict[str, str]]]:
    listed = _child(core, "address-settings")
    for setting in () if listed is None else listed:
        yield setting.get("match", ""), {_name(one): (one.text or "").strip() for one in setting}


def _address(draft: Draft, element: Xml.Element, settings: AddressSettings) -> None:
    address = element.get("name", "")
    place = f"address {address!r:.60}"
    if not address:
        draft.fail("addresses", "an address has no name")
        return
    fitting = [setting for setting in settings if _fits(setting[0].split("."), address.split("."))]
    merged: dict[str, str] = {}
    for _, terms in sorted(fitting, key=lambda setting: _specificity(setting[0])):
        merged |= terms
    for part in element:
        if _name(part) == "multicast":
            text = "multicast: write it into [broker] addresses, or serve --multicast ADDRESS"
            draft.leave(place, text)
        elif _name(part) != "anycast":
            draft.leave(place, f"element {_name(part)!r:.60}")
            continue
        for queue in part:
            _queue(draft, address, queue, merged)


def _queue(draft: Draft, address: str, element: Xml.Element, merged: dict[str, str]) -> None:
    name = element.get("name", "")
    place = f"address {address!r:.60} queue {name!r:.60}"
    if not name:
        draft.fail(place, "a queue has no name")
        return
    arguments: dict[str, Any] = {}
    merged = merged | _attributes(draft, place, element, arguments)
    for child in element:
        if _name(child) == "durable" and (child.text or "").strip() != "false":
            continue
        draft.leave(place, f"element {_name(child)!r:.60}")
    _add_settings(draft, place, (address, merged), arguments)
    full = name if name == address else f"{address}::{name}"
    order = Order(AdminAction.CREATE_QUEUE, queue=full, arguments=arguments)
    draft.queues.append(PlacedOrder(place, order))


def _attributes(
    draft: Draft, place: str, element: Xml.Element, arguments: dict[str, Any]
) -> dict[str, str]:
    """Turn attributes of a queue into its arguments; return those that settings have, too."""
    settings: dict[str, str] = {}
    for attribute, value in element.attrib.items():
        if attribute == "last-value-key":
            arguments["last_value_key"] = value
        elif attribute == "max-consumers" and value == "1":
            arguments["exclusive"] = True
        elif attribute in _OF_QUEUE:
            settings[_OF_QUEUE[attribute]] = value
        elif attribute != "name" and (attribute, value) not in _USUAL:
            draft.leave(place, f"attribute {attribute}={value!r:.40}")
    return settings


def _add_settings(
    draft: Draft, place: str, of: tuple[str, dict[str, str]], arguments: dict[str, Any]
) -> None:
    """Turn the settings of an address into arguments of its queue."""
    address, terms = of[0], dict(of[1])
    dead = terms.pop("dead-letter-address", "")
    if dead not in {"", address}:  # `#` names it for the queue of dead letters itself, too
        arguments["dead_letter_queue"] = dead
    if (expired := terms.pop("expiry-address", "")) not in {"", dead}:
        draft.leave(place, f"expiry-address {expired!r:.60}: what expires is a dead letter here")
    if key := terms.pop("default-last-value-key", ""):
        arguments.setdefault("last_value_key", key)
    attempts = _number(draft, place, terms, "max-delivery-attempts")
    if attempts is not None and attempts > 0:
        arguments["max_delivery_count"] = attempts - 1  # failures after which one more may come
    ttl = _number(draft, place, terms, "expiry-delay")
    if ttl is not None and ttl != _NO_LIMIT:
        arguments["message_ttl_ms"] = ttl
    if terms.pop("default-exclusive-queue", "") == "true":
        arguments["single_active_consumer"] = True
    _add_retries(draft, place, terms, arguments)
    _add_limits(draft, place, terms, arguments)
    for name in terms:
        draft.leave(place, f"setting {name!r:.60}")


def _add_retries(
    draft: Draft, place: str, terms: dict[str, str], arguments: dict[str, Any]
) -> None:
    """Turn the delays of redelivery into those of a queue; the longest is ten of the first."""
    delay = _number(draft, place, terms, "redelivery-delay") or 0
    longest = _number(draft, place, terms, "max-redelivery-delay")
    try:
        growth = float(terms.pop("redelivery-delay-multiplier", "") or 1)
    except ValueError as reason:
        draft.fail(place, f"redelivery-delay-multiplier: {reason}: it must be a number")
        return
    if delay <= 0:
        return
    arguments["retry_delay_ms"] = delay
    if growth < 1 or not growth.is_integer():
        text = f"redelivery-delay-multiplier {growth}: retry_delay_multiplier is a whole number"
        draft.leave(place, f"{text} from 1")
    elif growth > 1:
        arguments["retry_delay_multiplier"] = int(growth)
        arguments["max_retry_delay_ms"] = longest or _USUAL_GROWTH * delay


def _add_limits(draft: Draft, place: str, terms: dict[str, str], arguments: dict[str, Any]) -> None:
    policy = terms.pop("address-full-policy", "PAGE")
    ring = _number(draft, place, terms, "default-ring-size")
    limits = {
        ours: _number(draft, place, terms, theirs)
        for theirs, ours in (("max-size-bytes", "max_bytes"), ("max-size-messages", "max_depth"))
    }
    given = {ours: limit for ours, limit in limits.items() if limit not in {None, _NO_LIMIT}}
    if ring is not None and ring != _NO_LIMIT:
        arguments |= {"max_depth": ring, "when_full": "drop_head"}
        if given and policy in _FULL:
            draft.leave(place, "limits of the address beside its ring: a queue has one when_full")
    elif policy in _FULL:
        arguments |= {**given, **({"when_full": _FULL[policy]} if given else {})}
    elif given and policy != "PAGE":  # paging limits memory alone, as this store does anyway
        draft.leave(place, f"address-full-policy {policy!r:.20}: set max_bytes and when_full")


def _number(draft: Draft, place: str, terms: dict[str, str], name: str) -> int | None:
    text = terms.pop(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        draft.fail(place, f"{name} is {text!r:.40}: it must be a whole number")
        return None


def _fits(pattern: list[str], words: list[str]) -> bool:
    """Tell whether an address fits a pattern: `*` is one word, `#` any number of them."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_fits(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in {"*", words[0]} and _fits(pattern[1:], words[1:])


def _specificity(pattern: str) -> tuple[bool, bool, int]:
    words = pattern.split(".")
    return "#" not in words, "*" not in words, len(words)


def _name(element: Xml.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _child(element: Xml.Element, name: str) -> Xml.Element | None:
    return next((child for child in element if _name(child) == name), None)
