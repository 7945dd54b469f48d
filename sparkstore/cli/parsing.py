"""Make the parsers of commands: alike, each with its help, its example and `--json`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sparkstore.exit_codes import ExitCode
from sparkstore.log_format import add_log_format

if TYPE_CHECKING:  # it is generic only for the type checker, and has no public name
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001

ROOT = ("root", "folder of the root, or s3://BUCKET/PREFIX")


def command(
    subparsers: Subparsers,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    more: str,
    *,
    positional: Sequence[tuple[str, str]] = (ROOT,),
    name: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command that is called as its function, or by another `name`.

    Args:
        subparsers: The command line's subparsers, to which the command is added.
        run: What it does: takes the arguments, prints, returns the exit code.
        summary: One line, small letters.
        more: The rest of its help; ends with an example.
        positional: Name and help of each positional argument.
        name: What it is called.
    """
    parser = subparsers.add_parser(
        name or run.__name__,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for machines")
    add_log_format(parser.add_argument)
    for argument, what in positional:
        parser.add_argument(argument, help=what)
    return parser


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


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add `--check`: a dry run whose exit code tells a script whether something would change."""
    parser.add_argument(
        "--check",
        action="store_true",
        help="as --dry-run, with exit code 10 if something would change, 0 if not",
    )


def check_code(arguments: argparse.Namespace, changes: int) -> int:
    """Return the exit code of a dry run that found so many changes."""
    return ExitCode.WOULD_CHANGE if arguments.check and changes else ExitCode.DONE
