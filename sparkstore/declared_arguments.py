"""Arguments of queues as they are declared: each stands once, and what is made of it follows. Pure.

`core.queue_arguments.QueueArguments` declares them: a field is an argument's name, type and
default, and its `Argument` says the rest. From that follow the check of what a caller says, what a
definition means, the help of commands, the settings file, docs/queues.md and OpenAPI
(`broker_shim.argument_documents`). An argument with a field has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple, get_args, get_type_hints

AT_ANY_TIME = "at any time"
WHILE_EMPTY = "while the queue is empty"
WHILE_UNUSED = "while the queue has no consumer"
NOT_FOR_SEVERAL = "not to true while the queue has several consumers"
"""When an argument may be altered (`operations.queue_alteration`)."""


class Argument(NamedTuple):
    """Declare an argument of a queue, beside its name, type and default.

    Attributes:
        text: What it does, as the end of a sentence; for whoever reads a list of them.
        since: The release that brought it.
        least: The least number.
        most: The largest number; of a name the most characters.
        words: The texts there are; the first is what a queue does where nothing is said.
        names: What a text is the name of; empty for numbers, words and switches.
        changes: When it may be altered, one of those above.
        name: Its name (`declared_arguments` fills it in, as it does the next).
        kind: The type of a value.
    """

    text: str
    since: str
    least: int = 0
    most: int = 0
    words: tuple[str, ...] = ()
    names: str = ""
    changes: str = AT_ANY_TIME
    name: str = ""
    kind: type = bool

    @property
    def may_be(self) -> str:
        """Say in words what a value may be."""
        if self.kind is bool:
            return "true or false"
        if self.kind is int:
            return f"an integer from {self.least} to {self.most}"
        if self.words:
            return " or ".join(f'"{word}"' for word in self.words)
        return f"the name of {self.names}"

    @property
    def listed(self) -> str:
        """Say in a line of a list what it does, and what it may be; of no number how large."""
        value = f"an integer from {self.least}" if self.kind is int else self.may_be
        return f"{self.text} ({value})"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of a value; null, where an order takes the argument away, beside it."""
        described: dict[str, Any] = {"description": self.text}
        if self.kind is bool:
            return {"type": ["boolean", "null"], **described}
        if self.kind is int:
            bounds = {"minimum": self.least, "maximum": self.most}
            return {"type": ["integer", "null"], **bounds, **described}
        if self.words:
            return {"enum": [*self.words, None], **described}
        return {"type": ["string", "null"], "minLength": 1, "maxLength": self.most, **described}


@cache
def declared_arguments(declared: type) -> dict[str, Argument]:
    """Return the arguments that a NamedTuple declares, by name and in the order of its fields."""
    return {argument.name: argument for argument in _declared(declared)}


def _declared(declared: type) -> Iterator[Argument]:
    for name, hint in get_type_hints(declared, include_extras=True).items():
        plain, argument = get_args(hint)
        yield argument._replace(name=name, kind=(get_args(plain) or (plain,))[0])
