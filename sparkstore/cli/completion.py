"""The command `completion`: a script by which a shell completes commands and options.

The script is made from the parsers themselves, so it knows what this release does, and completing
starts no Python. Arguments that are no option are completed as files.
"""

from __future__ import annotations

import argparse
import io
import re
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from importlib.metadata import EntryPoint
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from sparkstore.cli.parsing import command

if TYPE_CHECKING:
    from sparkstore.cli.parsing import Subparsers

SHELLS = ("bash", "zsh", "fish")
_OPTION = re.compile(r"(?<![\w-])--[a-z0-9][a-z0-9-]*")


class Completed(NamedTuple):
    """The words that may follow a command.

    Attributes:
        path: The command and its subcommand; empty: nothing was typed yet.
        words: Options, or names of commands, in order.
        help: The summary of the command.
    """

    path: tuple[str, ...]
    words: tuple[str, ...]
    help: str


def add(
    subparsers: Subparsers, whole: argparse.ArgumentParser, others: Mapping[str, EntryPoint]
) -> None:
    """Add the command `completion` to a command line.

    Args:
        subparsers: The parsers of its commands, to which this one is added.
        whole: Its parser, which has all other commands when the script is made.
        others: Commands that parse their arguments themselves, by name.
    """

    def completion(arguments: Namespace) -> int:
        """Print the script of a shell."""
        known = [*_completed(whole, others)]
        is_fish = arguments.shell == "fish"
        print(_fish(known) if is_fish else _bash(known, arguments.shell), end="")
        return 0

    parser = command(
        subparsers,
        completion,
        "print a script that completes commands and options in a shell",
        "examples:\n  source <(sparkstore completion bash)          now, or in ~/.bashrc\n"
        "  sparkstore completion zsh > ~/.zfunc/_sparkstore\n"
        "  sparkstore completion fish > ~/.config/fish/completions/sparkstore.fish",
        positional=(),
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def _completed(
    parser: argparse.ArgumentParser, others: Mapping[str, EntryPoint]
) -> Iterator[Completed]:
    """Iterate over all commands with the words that may follow them."""
    for completed in _walk(parser, (), ""):
        name = completed.path[0] if completed.path else ""
        yield (
            completed if name not in others else completed._replace(words=_options_of(others[name]))
        )


def _walk(
    parser: argparse.ArgumentParser, path: tuple[str, ...], summary: str
) -> Iterator[Completed]:
    options, inner = list[str](), dict[str, argparse.ArgumentParser]()
    summaries: dict[str, str] = {}
    for action in parser._actions:  # noqa: SLF001  # argparse has no other list of them
        is_shown = action.help != argparse.SUPPRESS
        options += [name for name in action.option_strings if name[:2] == "--" and is_shown]
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            inner.update(action.choices)
            summaries |= {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
    yield Completed(path, (*inner, *options), summary)
    for name, subparser in inner.items():
        yield from _walk(subparser, (*path, name), summaries.get(name, ""))


def _options_of(point: EntryPoint) -> tuple[str, ...]:
    """Read the options of a command that has a parser of its own from its help."""
    text = io.StringIO()
    with redirect_stdout(text), suppress(SystemExit):
        point.load()(["--help"])
    return tuple(dict.fromkeys(_OPTION.findall(text.getvalue())))


def _bash(known: list[Completed], shell: str) -> str:
    paths = "|".join(quote(" ".join(completed.path)) for completed in known if completed.path)
    cases = "\n".join(
        f"    {quote(' '.join(completed.path))}) found={quote(' '.join(completed.words))} ;;"
        for completed in known
    )
    begin = "#compdef sparkstore\nautoload -U +X bashcompinit && bashcompinit\n"
    return f"""\
{begin if shell == "zsh" else ""}\
_sparkstore() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" entered="" next found index
  for ((index = 1; index < COMP_CWORD; index++)); do
    next="${{entered:+$entered }}${{COMP_WORDS[index]}}"
    case "$next" in {paths}) entered="$next" ;; esac
  done
  case "$entered" in
{cases}
  esac
  COMPREPLY=($(compgen -W "$found" -- "$current"))
}}
complete -o default -F _sparkstore sparkstore
"""


def _fish(known: list[Completed]) -> str:
    lines = []
    for completed in known:
        if not completed.path:
            continue
        *before, name = completed.path
        when = f"__fish_seen_subcommand_from {before[0]}" if before else "__fish_use_subcommand"
        summary = quote(completed.help)
        lines.append(f"complete -c sparkstore -n {quote(when)} -a {name} -d {summary}")
        seen = "; and ".join(f"__fish_seen_subcommand_from {part}" for part in completed.path)
        lines += [
            f"complete -c sparkstore -n {quote(seen)} -l {word[2:]}"
            for word in completed.words
            if word.startswith("--")
        ]
    return "\n".join(lines) + "\n"
