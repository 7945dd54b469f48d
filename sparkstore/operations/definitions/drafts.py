"""Collect what a document of definitions asks for, and what of it cannot be had here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sparkstore.errors import InvalidRequest
from sparkstore.operations.administration import AdminAction, Order
from sparkstore.settings_file import check_names


class PlacedOrder(NamedTuple):
    """An order, and the place in the document that asks for it."""

    place: str
    order: Order


class Problem(NamedTuple):
    """A place in a document, and what is wrong with it or has no counterpart here."""

    place: str
    text: str


class Definitions(NamedTuple):
    """The content of a document.

    Attributes:
        orders: Exchanges, queues, bindings and policies, in this order.
        unmapped: What the other broker has and this one has not; the rest can be imported.
        errors: What is wrong; nothing may be imported then.
    """

    orders: Sequence[PlacedOrder] = ()
    unmapped: Sequence[Problem] = ()
    errors: Sequence[Problem] = ()


class Draft:
    """Definitions that a reader collects, with every error instead of the first alone."""

    def __init__(self) -> None:
        self.exchanges: list[PlacedOrder] = []
        self.queues: list[PlacedOrder] = []
        self.bindings: list[PlacedOrder] = []
        self.policies: list[PlacedOrder] = []
        self.unmapped: list[Problem] = []
        self.errors: list[Problem] = []

    def leave(self, place: str, text: str) -> None:
        """Note what cannot be imported, and why."""
        self.unmapped.append(Problem(place, text))

    def fail(self, place: str, text: str) -> None:
        """Note what is wrong with the document."""
        self.errors.append(Problem(place, text))

    def entries(
        self, document: Mapping[str, Any], part: str, fields: Mapping[str, type], *, is_ours: bool
    ) -> list[tuple[str, dict[str, Any]]]:
        """The entries of one part with their places; a wrong one is an error and left out.

        Args:
            document: The whole of it.
            part: Name of a list of objects in it; absent: an empty one.
            fields: The fields of an entry, each with its type.
            is_ours: Fields that are not in `fields` are errors.
        """
        listed = document.get(part, [])
        if not isinstance(listed, list):
            self.fail(part, f"is {_kind(listed)}: it must be a list")
            return []
        entries = []
        for number, entry in enumerate(listed):
            place = f"{part}[{number}]"
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                place += f" {entry['name']!r:.60}"
            if wrong := _wrong(entry, fields, is_ours=is_ours):
                self.fail(place, wrong)
            else:
                entries.append((place, entry))
        return entries

    def done(self) -> Definitions:
        """Return what was collected; an exchange comes after its alternate."""
        exchanges = _alternates_first(self.exchanges)
        orders = [*exchanges, *self.queues, *self.bindings, *self.policies]
        return Definitions(orders, [*_by_reason(self.unmapped)], self.errors)


def _by_reason(problems: Sequence[Problem]) -> Iterator[Problem]:
    """Yield each reason once, with its first place and the number of others.

    A setting of Artemis' is merged into every queue, and would hide what matters in a line each.
    """
    for text in dict.fromkeys(problem.text for problem in problems):
        first, *others = dict.fromkeys(of.place for of in problems if of.text == text)
        yield Problem(f"{first} and {len(others)} more" if others else first, text)


def set_policy(
    name: str = "", match: str = "", priority: int = 0, arguments: Mapping[str, Any] | None = None
) -> Order:
    """The order that sets a policy as an entry of a document says; it is refused if parts lack."""
    return Order(
        AdminAction.SET_POLICY,
        key=name,
        match=match,
        priority=priority,
        arguments=arguments or {},
    )


def _wrong(entry: object, fields: Mapping[str, type], *, is_ours: bool) -> str:
    if not isinstance(entry, dict):
        return f"is {_kind(entry)}: it must be an object"
    try:
        if is_ours:
            check_names(entry, fields, "field")
    except InvalidRequest as reason:
        return str(reason)
    for name, wanted in fields.items():
        if name in entry and type(entry[name]) is not wanted:  # true is no number
            return f"{name} is {_kind(entry[name])}: it must be {_KINDS[wanted]}"
    return ""


_KINDS = {str: "a text", dict: "an object", list: "a list", bool: "true or false", int: "a number"}


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "a number")


def _alternates_first(exchanges: Sequence[PlacedOrder]) -> list[PlacedOrder]:
    """Order exchanges so that each comes after its alternate; a circle stays, and is refused."""
    waiting, sorted_names, done = list(exchanges), set[str](), list[PlacedOrder]()
    names = {placed.order.exchange for placed in waiting}
    while waiting:
        ready = [
            placed
            for placed in waiting
            if (to := placed.order.arguments.get("alternate_exchange")) not in names
            or to in sorted_names
        ]
        ready = ready or waiting
        done += ready
        sorted_names |= {placed.order.exchange for placed in ready}
        waiting = [placed for placed in waiting if placed not in ready]
    return done
