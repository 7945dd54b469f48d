"""The settings file, `sparkstore.toml`: one section for each who reads it.

What nobody knows is an error that names the nearest name there is, wherever it stands: ignored, a
misspelt `[securty]` would leave a broker open to everybody, and a misspelt argument of a queue
would drop what it was to keep.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from sparkstore.errors import InvalidRequest

SECTIONS = ("store", "storage", "broker", "security", "amqp_0_10")
_LISTED = 8
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Name the settings file in errors that the block raises about its content."""
    try:
        yield
    except InvalidRequest as reason:
        message = f"settings {path}: {reason}"
        raise InvalidRequest(message) from reason


def read_section(
    path: Path, section: str, defaults: object, *, without: Collection[str] = ()
) -> dict[str, Any]:
    """The settings that a file has in one section.

    Args:
        path: The TOML file to read.
        section: One of `SECTIONS`.
        defaults: A dataclass of settings, which tells their names and types. A list is returned as
            the file has it.
        without: Fields of it that are no settings of this section.

    Raises:
        InvalidRequest: No such file, not TOML, an unknown section or setting, a value of the wrong
            type; the message does not name the file (`told_of` does).
    """
    try:
        content: dict[str, Any] = tomllib.loads(path.read_bytes().decode())
    except OSError as reason:
        raise InvalidRequest(str(reason.strerror)) from reason
    except (ValueError, RecursionError) as reason:
        raise InvalidRequest(str(reason)) from reason
    check_names(content, SECTIONS, "section")
    for name, table in content.items():
        if not isinstance(table, dict):
            message = f"{name} must be a table: write [{name}] above its settings"
            raise InvalidRequest(message)
    found: dict[str, Any] = content.get(section, {})
    known = {
        each.name: type(getattr(defaults, each.name))
        for each in fields(defaults)  # type: ignore[arg-type]
        if each.name not in without
    }
    check_names(found, known, "setting", f"in [{section}]")
    for name, value in found.items():
        check_kind(section, name, value, known[name])
    return found


class SettingsAtStart:
    """The settings of a file as they were when a process began, to find later changes."""

    def __init__(self, path: Path | None) -> None:
        """Read it; None: there is no file, so nothing changes in it."""
        self._path = path
        self._values = _values(path)

    def changed(self) -> list[str]:
        """The settings with another value now, in order, each as `[section] name`."""
        values = _values(self._path)
        names = {*values} | {*self._values}
        return sorted(name for name in names if values.get(name) != self._values.get(name))


def _values(path: Path | None) -> dict[str, Any]:
    content = {} if path is None else tomllib.loads(path.read_text())
    return {
        f"[{section}] {name}": value
        for section, table in content.items()
        for name, value in table.items()
    }


def audit_file(path: Path) -> Path | None:
    """Return the audit file of a settings file that was read before; None: it has none.

    The broker reads this section; a command that does a broker's work needs no more of it.
    """
    name = tomllib.loads(path.read_text()).get("security", {}).get("audit_file")
    return Path(name) if isinstance(name, str) and name else None


def check_names(
    found: Mapping[str, Any], known: Collection[str], what: str, where: str = ""
) -> None:
    """Refuse names that are no settings.

    Args:
        found: What somebody wrote, by name.
        known: The names there are.
        what: What they are names of, for the message.
        where: Where they were written, for the message; may be empty.

    Raises:
        InvalidRequest: The first unknown name, and the nearest that there is.
    """
    for name in found:
        if name not in known:
            message = f"unknown {what} {name!r}{where and ' ' + where}: {_advice(name, known)}"
            raise InvalidRequest(message)


def _advice(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, 1)
    if near:
        return f"did you mean {near[0]!r}?"
    listed = sorted(known)
    if len(listed) <= _LISTED:
        return f"say one of {', '.join(listed)}"
    return "none has a name like it; conf/sparkstore.toml has all"


def check_kind(section: str, name: str, value: object, kind: type) -> None:
    """Check that a value of a section has the type of its default; raises InvalidRequest."""
    is_whole = kind is float and type(value) is int
    if kind is tuple:
        if not isinstance(value, list):
            message = f"[{section}] {name} must be a list"
            raise InvalidRequest(message)
    elif type(value) is not kind and not is_whole:
        message = f"[{section}] {name} is {value!r}: say {_KINDS[kind]}"
        raise InvalidRequest(message)
