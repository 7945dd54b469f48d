"""Make the parsers of commands: alike, each with its help, its example, its target and `--json`.

A command is about a ROOT. Most can be asked of a broker elsewhere, too: `--url` then stands instead
of ROOT, and is declared once, with the login, for all of them (`command` with `by_url`).
"""

from __future__ import annotations

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkstore.errors import InvalidRequest
from sparkstore.exit_codes import ExitCode
from sparkstore.log_format import add_log_format
from sparkstore.secret_file import PASSWORD_VARIABLE, TOKEN_VARIABLE, refuse_secret

if TYPE_CHECKING:  # it is generic only for the type checker, and has no public name
    Subparsers = argparse._SubParsersAction[ArgumentParser]  # noqa: SLF001

ROOT = ("root", "folder of the root, or s3://BUCKET/PREFIX")
URL = "--url"
_LOGIN = {
    "--user": ("NAME", str, "the user who logs in"),
    "--password-file": ("FILE", Path, f"its password (else {PASSWORD_VARIABLE} has it)"),
    "--token-file": ("FILE", Path, f"a user's token (else {TOKEN_VARIABLE} has it)"),
    "--ca-file": ("FILE", Path, "authorities of the broker's certificate, PEM"),
    "--cert": ("FILE", Path, "the client's certificate, PEM"),
    "--cert-key": ("FILE", Path, "the key of --cert, PEM"),
}


def command(
    subparsers: Subparsers,
    run: Callable[[Namespace], int],
    summary: str,
    more: str,
    *,
    positional: Sequence[tuple[str, str]] = (ROOT,),
    name: str | None = None,
    by_url: bool = False,
) -> ArgumentParser:
    """Add a command that is called as its function, or by another `name`.

    Args:
        subparsers: The command line's subparsers, to which the command is added.
        run: What it does: takes the arguments, prints, returns the exit code.
        summary: One line, small letters.
        more: The rest of its help; ends with an example.
        positional: Name and help of each positional argument.
        name: What it is called.
        by_url: It can ask a broker by its HTTP port instead of a root.
    """
    parser = subparsers.add_parser(
        name or run.__name__,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, url=None, for_root=())
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    add_log_format(parser.add_argument)
    for argument, what in positional:
        parser.add_argument(argument, help=what)
    if by_url:
        _add_broker(parser)
    return parser


def group(subparsers: Subparsers, name: str, summary: str) -> Subparsers:
    """Add a group of commands, such as `queue`."""
    parser = subparsers.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
    return parser.add_subparsers(metavar="COMMAND", required=True)


def _add_broker(parser: ArgumentParser) -> None:
    """Let a command ask a broker elsewhere, with a login."""
    broker = parser.add_argument_group("a broker by its HTTP port, instead of ROOT")
    broker.add_argument(URL, help="https://HOST:PORT, as of serve --http")
    for option, (metavar, kind, what) in _LOGIN.items():
        broker.add_argument(option, metavar=metavar, type=kind, help=what)
    refuse_secret(broker.add_argument, "--password", f"--password-file or {PASSWORD_VARIABLE}")
    refuse_secret(broker.add_argument, "--token", f"--token-file or {TOKEN_VARIABLE}")


def with_url_as_root(parser: ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return a command line with the URL that it names as its ROOT, which is left out with it.

    Raises:
        InvalidRequest: The command is about a root alone.
    """
    url = _url_in(words)
    if url is None:
        return [*words]
    count, inner = 0, _inner(parser)
    while inner and count < len(words) and words[count] in inner:
        parser = inner[words[count]]
        count, inner = count + 1, _inner(parser)
    if inner:  # no command: argparse says which there are
        return [*words]
    if not any(URL in action.option_strings for action in parser._actions):  # noqa: SLF001
        name = " ".join(words[:count])
        raise InvalidRequest(f"{name} has no {URL}: it reads a root, so run it where the root is")
    return [*words[:count], url, *words[count:]]


def _url_in(words: Sequence[str]) -> str | None:
    for word, following in zip_longest(words, words[1:]):
        if word == URL:
            return following
        if word.startswith(f"{URL}="):
            return word.partition("=")[2]
    return None


def _inner(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001  # argparse has no other list of them
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def check_target(arguments: Namespace) -> None:
    """Refuse options that the target has no use for.

    Raises:
        InvalidRequest: One is for a root, and a URL is named, or the other way round.
    """
    if arguments.url is None:
        options = ((option, option[2:].replace("-", "_")) for option in _LOGIN)
        useless = [option for option, name in options if getattr(arguments, name, None) is not None]
        why = f"is for a broker by its HTTP port: give {URL}, too"
    else:
        useless = [
            action.option_strings[0]
            for action in arguments.for_root
            if getattr(arguments, action.dest) != action.default
        ]
        why = f"needs ROOT: leave it out with {URL}, or run this where the root is"
    if useless:
        raise InvalidRequest(f"{useless[0]} {why}")


def add_for_root(parser: ArgumentParser, option: str, **settings: Any) -> None:
    """Add an option that only a root has a use for: with a URL it is refused."""
    action = parser.add_argument(option, **settings)
    parser.set_defaults(for_root=(*parser.get_default("for_root"), action))


def add_config(parser: ArgumentParser) -> None:
    """Add `--config`: the settings of a store that nobody serves."""
    what = "settings of the store, if it has its own"
    add_for_root(parser, "--config", type=Path, metavar="FILE", help=what)


def add_progress(parser: ArgumentParser) -> None:
    """Add `--progress` to a command that may take long."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="show how far it is on standard error (default: if that is a terminal)",
    )


def add_limit(parser: ArgumentParser, what: str) -> None:
    """Add `--limit`: how many rows are shown."""
    parser.add_argument("--limit", type=at_least_0, metavar="N", help=what)


def at_least_0(text: str) -> int:
    """A number of things.

    Raises:
        ArgumentTypeError: It is negative.
        ValueError: It is no number.
    """
    number = int(text)
    if number < 0:
        message = f"{number} is negative"
        raise argparse.ArgumentTypeError(message)
    return number


def at_least_1(text: str) -> int:
    """A number that something has, or a count of things that are there.

    Raises:
        ArgumentTypeError: It is below 1.
        ValueError: It is no number.
    """
    number = int(text)
    if number < 1:
        message = f"{number} is below 1"
        raise argparse.ArgumentTypeError(message)
    return number


def row_limit(arguments: Namespace, for_people: int) -> int:
    """Return the number of rows to show, 0: all; a machine gets all unless it says otherwise."""
    if arguments.limit is not None:
        return int(arguments.limit)
    return 0 if arguments.json else for_people


def add_dry_run(parser: ArgumentParser, what: str) -> None:
    """Add `--dry-run`, and `--check`, whose exit code tells whether something would change."""
    parser.add_argument("--dry-run", action="store_true", help=what)
    parser.add_argument(
        "--check",
        action="store_true",
        help="as --dry-run, with exit code 10 if something would change, 0 if not",
    )


def is_dry(arguments: Namespace) -> bool:
    """Tell whether a command is to change nothing."""
    return bool(arguments.dry_run or arguments.check)


def check_code(arguments: Namespace, changes: int) -> int:
    """Return the exit code of a command that changed, or would change, so many things."""
    return ExitCode.WOULD_CHANGE if arguments.check and changes else ExitCode.DONE
