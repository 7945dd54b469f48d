"""Read a secret, which is one line of a file, and never repeat it.

A password or a token that is wrong is told by its file's name alone: what a command says goes to
terminals and logs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

from sparkstore.errors import InvalidRequest

MOST_SECRET_BYTES = 4_096
PASSWORD_VARIABLE = "SPARKSTORE_PASSWORD"  # noqa: S105  # the name of it
TOKEN_VARIABLE = "SPARKSTORE_TOKEN"  # noqa: S105  # likewise
"""Variables of the environment that a client of a broker's HTTP port reads."""
_BEARER = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What may stand in an HTTP header as a token (RFC 6750, 2.1)."""


def read_secret(path: Path, what: str) -> str:
    """Read the one line of a file, without its end.

    Args:
        path: The file; a pipe will do.
        what: What it holds: `password`, `token`.

    Raises:
        InvalidRequest: It cannot be read, or is not one line of UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_SECRET_BYTES + 1)
    except (OSError, ValueError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else "that is no path"
        raise InvalidRequest(f"{what} file {path}: {why}") from reason
    return _checked(content, f"{what} file {path}", what)


def bearer_token(text: str, where: str) -> str:
    """Check that a text can be sent as a token; an HTTP client would print one that it refuses.

    Args:
        text: What would be sent as the token.
        where: The file or variable that has it.

    Raises:
        InvalidRequest: It has other characters.
    """
    if not _BEARER.fullmatch(text):
        message = f"{where} has no token: give what `sparkstore passwd FILE USER --token` printed"
        raise InvalidRequest(message)
    return text


class _SecretOnCommandLine(argparse.Action):
    """Ends a command that was given a secret itself, and does not repeat it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: object,
        option: str | None = None,
    ) -> None:
        parser.error(f"{option}: every user of this machine sees a command line: use {self.const}")


def refuse_secret(add: Callable[..., object], option: str, instead: str) -> None:
    """Refuse a secret as an option, which argparse would take for a file's name and print.

    Args:
        add: Adds an argument to a parser.
        option: What stands for a longer option, as `--token` does for `--token-file`.
        instead: What to give instead.
    """
    hidden = argparse.SUPPRESS
    add(
        option, action=_SecretOnCommandLine, const=instead, dest=hidden, default=hidden, help=hidden
    )


def _checked(content: bytes, where: str, what: str) -> str:
    if len(content) > MOST_SECRET_BYTES:
        raise InvalidRequest(
            f"{where} is longer than {MOST_SECRET_BYTES} bytes: give it the {what}"
        )
    try:
        line = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise InvalidRequest(f"{where} is not UTF-8: write the {what} anew") from None
    if "\n" in line or "\r" in line:
        raise InvalidRequest(f"{where} has more than one line: leave the {what} alone in it")
    return line
