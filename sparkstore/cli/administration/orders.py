"""The parts of every administrator's order: its parser, its arguments as text, and its answer."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from textwrap import fill
from typing import TYPE_CHECKING, Any

from sparkstore.cli.output import show_row
from sparkstore.cli.parsing import ROOT, add_config, add_dry_run, check_code, command
from sparkstore.cli.target import given
from sparkstore.core.queue_arguments import ARGUMENTS
from sparkstore.errors import InvalidRequest
from sparkstore.operations.administration import Order

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

LOOK = (
    "Needs no Java and changes nothing. Of a ROOT it shows the state in Delta, as `queues` does,\n"
)
LOOK += "of a broker at a URL what it has now.\n\n"
_HOW = (
    "The running broker does it, or, if none serves the root, this command under the writer's\n"
    "lock. Done again it does nothing more. A queue is named address::queue or plainly.\n\n"
)
ARGUMENT_HELP = (
    "arguments (docs/queues.md):\n"
    + "\n".join(
        fill(
            f"{argument.name}: {argument.listed}",
            98,
            initial_indent="  ",
            subsequent_indent="      ",
            break_on_hyphens=False,
        )
        for argument in ARGUMENTS.values()
    )
    + "\n\n"
)
_NAMES = {"alternate_exchange", "dead_letter_queue", "last_value_key"}
"""Arguments whose value is a text, whatever it looks like."""


def add_order(
    subparsers: Subparsers,
    run: Callable[[Namespace], int],
    name: str,
    summary: str,
    more: str,
    *positional: tuple[str, str],
) -> ArgumentParser:
    """Add a command that gives an order: about a root or by a URL, and it can be tried."""
    parser = command(
        *(subparsers, run, summary, _HOW + more),
        positional=(ROOT, *positional),
        name=name,
        by_url=True,
    )
    add_config(parser)
    what = "say what it would do, change nothing; of a ROOT by the tables"
    add_dry_run(parser, what)
    return parser


def add_list(
    subparsers: Subparsers, run: Callable[[Namespace], int], summary: str, example: str
) -> ArgumentParser:
    """Add a command `list` or `show`, as its example calls it."""
    more, name = f"{LOOK}example:\n  sparkstore {example}", example.split()[1]
    return command(subparsers, run, summary, more, name=name, by_url=True)


def add_set(parser: ArgumentParser, what: str) -> None:
    """Add `--set`: arguments of what is ordered."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="given", help=what
    )


def add_deletion(parser: ArgumentParser, force: str, user: str) -> None:
    """Add the limits of a deletion."""
    parser.add_argument("--force", action="store_true", help=force)
    text = f"not, by --force either, if it has {user}"
    parser.add_argument("--if-unused", action="store_true", help=text)


def ordered(arguments: Namespace, order: Order) -> int:
    """Give an order, and print what came of it."""
    answer = given(arguments, order)
    show_row(arguments, answer)
    return check_code(arguments, answer["changed"])


def given_arguments(texts: Iterable[str]) -> dict[str, Any]:
    """Arguments as `NAME=VALUE` has them: numbers, true and false, names.

    Raises:
        InvalidRequest: It is another text, or there twice.
    """
    pairs = _pairs(texts).items()
    return {name: value if name in _NAMES else _plain(value) for name, value in pairs}


def given_headers(texts: Iterable[str]) -> dict[str, Any]:
    """Headers of a binding as `NAME=VALUE` has them. Raises InvalidRequest."""
    return {name: _header(value) for name, value in _pairs(texts).items()}


def _pairs(texts: Iterable[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            message = f"--set {text!r}: say NAME=VALUE"
            raise InvalidRequest(message)
        if name in pairs:
            message = f"--set {name!r} is there twice: say it once"
            raise InvalidRequest(message)
        pairs[name] = value
    return pairs


def _header(text: str) -> Any:
    """The value of a header: what is no number, true, false, null or quoted text is a text."""
    try:
        value = json.loads(text, parse_constant=str)
    except ValueError:
        return text
    return text if isinstance(value, list | dict) else value


def _plain(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=str)
    except ValueError:
        return text
    return value if isinstance(value, int) else text
