"""The command lines that documents and `--help` texts show, each as a user would type it."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator

from broker_shim.security import passwd
from broker_shim.serve.options import parser as serve_parser
from sparkstore.cli import command_line
from tests.support.documents import DOCUMENTS, blocks

_CRON = re.compile(r"^(?:[\d*/]+\s+){5}")
_COMMAND = re.compile(r"(?:sparkstore [a-z]|curl )")


def shown_commands() -> list[str]:
    """Return the command lines of all documents and help texts, once each, in their order."""
    texts = [block for page in DOCUMENTS for block in blocks(page.read_text())]
    texts += [*_help_texts()]
    lines = [line for text in texts for line in _lines(text)]
    return [*dict.fromkeys(part for line in lines for part in line.split(" && "))]


def _help_texts() -> Iterator[str]:
    """Yield the examples of every command's help."""
    waiting = [command_line._parser({}), serve_parser(), passwd._parser()]
    while waiting:
        parser = waiting.pop(0)
        yield re.split(r"(?m)^examples?:$", parser.epilog or "")[-1]
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += dict.fromkeys(action.choices.values())


def _lines(text: str) -> Iterator[str]:
    """Yield the command lines of a text, without times of cron, remarks and other programs."""
    line = ""
    for part in text.splitlines():
        line = f"{line} {part.strip()}".strip() if line else _CRON.sub("", part.strip())
        if not _COMMAND.match(line):
            line = ""
        elif line.endswith("\\"):
            line = line.removesuffix("\\").strip()
        elif _is_whole(line):
            yield re.sub(r"\s*\|\s*jq .*|\s{3,}[^'\"]*$", "", line)
            line = ""
    assert not line, line


def _is_whole(line: str) -> bool:
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True
