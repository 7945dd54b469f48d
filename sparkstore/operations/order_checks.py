"""Refuse names and arguments of an administrator's order that nobody could use. Pure.

Those that check raise InvalidRequest, with what to do. What may be said of a queue is one check,
whoever says it (`check_given`): an order to create or alter it, a policy, a document of
definitions, which is orders, and `sparkstore doctor`. What is allowed and seldom meant is
warned of.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from sparkstore.core.queue_arguments import QueueArguments, check_arguments, terms_of
from sparkstore.core.queue_names import shown
from sparkstore.core.wiring_arguments import ALTERNATE_EXCHANGE
from sparkstore.errors import InvalidRequest
from sparkstore.settings_file import check_names

_MOST_CHARACTERS, _MOST_WORDS = 10_000, 256
"""Of a name: no client could say a longer one."""
_MOST_WARNINGS, _MOST_NAMES = 20, 10


class WiringFacts(Protocol):
    """The queues and exchanges that arguments may name, as they are defined now."""

    def detail(self, queue: str) -> str | None:
        """Definition of a queue, with what policies say of it; None: there is none."""

    def exchange_type(self, exchange: str) -> str | None:
        """Type of an exchange; None: there is none."""

    def alternate_of(self, exchange: str) -> str | None:
        """The alternate of an exchange; None: it has none."""


def check_name(what: str, name: str) -> None:
    """Refuse a name that no client could say."""
    if not name:
        message = f"a {what} needs a name of at least one character"
        raise InvalidRequest(message)
    try:
        name.encode()
    except UnicodeEncodeError as reason:
        message = f"{what} {name[:40]!a} is not valid Unicode"
        raise InvalidRequest(message) from reason
    if len(name) > _MOST_CHARACTERS or name.count(".") >= _MOST_WORDS:
        message = f"{what} {shown(name)}: a name has at most {_MOST_CHARACTERS} characters and"
        raise InvalidRequest(f"{message} {_MOST_WORDS} words")


def check_known(what: str, name: str, arguments: Collection[str]) -> None:
    """Refuse arguments of queues that are misspelt: the store would ask nothing of them."""
    known = QueueArguments._fields
    check_names(dict.fromkeys(arguments), known, "argument", f"of {what} {shown(name)}")


def check_loss(what: str, name: str, losses: Sequence[str], *, is_forced: bool) -> None:
    """Refuse to delete what somebody would miss, unless by force."""
    if losses and not is_forced:
        message = f"{what} {shown(name)} has {', '.join(losses)}: --force deletes it (over HTTP"
        message = f"{message} ?force=true), and that is lost"
        raise InvalidRequest(message)


def check_given(what: str, name: str, arguments: Mapping[str, Any], facts: WiringFacts) -> None:
    """Refuse arguments that a queue cannot have, said by itself or by a policy.

    Args:
        what: `queue` or `policy`.
        name: Of the one that says them.
        arguments: All that it says.
        facts: What there is.
    """
    check_arguments(name, arguments, what)
    alternate = arguments.get(ALTERNATE_EXCHANGE)
    if alternate is not None:
        check_alternate(what, name, alternate, facts)


def check_alternate(what: str, name: str, alternate: str, facts: WiringFacts) -> None:
    """Refuse an alternate exchange that does not exist, or that leads back to its owner."""
    if facts.exchange_type(alternate) is None:
        message = f"{what} {shown(name)}: its {ALTERNATE_EXCHANGE} {shown(alternate)} is not there:"
        raise InvalidRequest(f"{message} create it first (sparkstore exchange create)")
    seen, following = {name} if what == "exchange" else set(), alternate
    while following not in seen:
        seen.add(following)
        further = facts.alternate_of(following)
        if further is None:
            return
        following = further
    if what == "exchange" and following == name:
        message = f"exchange {shown(name)}: messages that go nowhere would come back to it from its"
        message += f" {ALTERNATE_EXCHANGE} {shown(alternate)}: say another"
        raise InvalidRequest(message)


def warnings_of(definitions: Mapping[str, str], facts: WiringFacts) -> dict[str, list[str]]:
    """Warn of cycles of dead letters, as a part of an answer: empty if there are none.

    Args:
        definitions: Those that queues shall have, by name, with what policies say of them.
        facts: What the other queues have.
    """
    cycles: dict[frozenset[str], str] = {}
    for queue in definitions:
        cycle = dead_letter_cycle(queue, lambda name: definitions.get(name) or facts.detail(name))
        if cycle and len(cycles) < _MOST_WARNINGS:
            cycles.setdefault(frozenset(cycle), cycle_text(cycle))
    return {"warnings": [*cycles.values()]} if cycles else {}


def dead_letter_cycle(queue: str, definition: Callable[[str], str | None]) -> list[str]:
    """Return the queues that messages go round which expire on a queue; none if they stop.

    They stop at a queue without a time to live, as one for retries has a consumer at the other.
    """
    path = [queue]
    while True:
        detail = definition(path[-1])
        arguments = QueueArguments() if detail is None else terms_of(detail).arguments
        target = arguments.dead_letter_queue_of(path[-1])
        if target is None or arguments.message_ttl_ms is None:
            return []
        if target in path:
            return path[path.index(target) :]
        path.append(target)


def cycle_text(cycle: Sequence[str]) -> str:
    """Tell a person of a cycle of dead letters."""
    names = " to ".join(map(shown, [*cycle[:_MOST_NAMES], cycle[0]]))
    text = f"dead letters go round from {names}: what expires on each of them leaves the store"
    return f"{text}; take message_ttl_ms or dead_letter_queue away from one of them"
