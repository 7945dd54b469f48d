"""The settings file, `sparkstore.toml`: one section for each who reads it.

What nobody knows is an error that names the nearest name there is, wherever it stands: ignored, a
misspelt `[securty]` would leave a broker open to everybody, and a misspelt argument of a queue
would drop what it was to keep.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from sparkstore.declared_settings import Setting, check_value, settings_of
from sparkstore.errors import InvalidRequest

SECTIONS = ("store", "storage", "broker", "security", "amqp_0_10")
_LISTED = 8
_MOST_LINES = 1000
"""A file of more lines is parsed once, and no line is named: finding one takes a parse of each."""

Rows = Mapping[str, Callable[[Any], object]]


class Declared(Protocol):
    """A dataclass that declares the settings of one table.

    Attributes:
        PLACE: The table as messages name it: `[store]`, or `[store] chain:` of a list's rows.
    """

    PLACE: ClassVar[str]


D = TypeVar("D", bound=Declared)
T = TypeVar("T")
_DECLARED: dict[str, type] = {}


def named_section(declared: type[D]) -> type[D]:
    """Let errors name the section of a setting that stands in another; decorates its class."""
    _DECLARED[_section_of(declared)] = declared
    return declared


def _section_of(declared: type[Declared]) -> str:
    return declared.PLACE.strip("[]")


def read_section(
    path: Path, declared: type[Declared], make: Callable[..., T], rows: Rows | None = None
) -> T:
    """Read one section of a settings file; what it leaves out has its default.

    Args:
        path: The TOML file to read.
        declared: The class that declares the section.
        make: Makes the result of the settings, by name: the class, where no more is to be done.
        rows: Makes a value of each row of a list, by the name of the setting.

    Raises:
        InvalidRequest: No such file, not TOML, an unknown section or setting, a value of the wrong
            type or out of bounds. The message names the file, and the line if there is one.
    """
    text, place = "", list[str]()
    try:
        text = _text_of(path)
        values = _values_of(_parsed(text), declared, rows or {}, place)
        return make(**values)
    except InvalidRequest as reason:
        line = _line_of(text, place)
        message = f"settings {path}{f', line {line}' if line else ''}: {reason}"
        raise InvalidRequest(message) from reason


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as reason:
        raise InvalidRequest(str(reason.strerror)) from reason
    except ValueError as reason:
        raise InvalidRequest(str(reason)) from reason


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as reason:
        raise InvalidRequest(str(reason)) from reason


def _values_of(
    content: Mapping[str, Any], declared: type[Declared], rows: Rows, place: list[str]
) -> dict[str, Any]:
    """Return the settings of one section by name; `place` is where it stopped, if it raises."""
    own = _section_of(declared)
    for name, table in content.items():
        place[:] = [name]
        check_names([name], SECTIONS, "section")
        if not isinstance(table, dict):
            message = f"{name} must be a table: write [{name}] above its settings"
            raise InvalidRequest(message)
    known, values = settings_of(declared), {}
    for name, value in content.get(own, {}).items():
        place[:] = [own, name]
        _check_is_here(name, known, own)
        check_value(known[name], value, declared.PLACE)
        row = rows.get(name)
        values[name] = tuple(map(row, value)) if row else _made(known[name], value)
    place[:] = [own]
    return values


def _check_is_here(name: str, known: Collection[str], own: str) -> None:
    others = [section for section, declared in _DECLARED.items() if name in settings_of(declared)]
    if name not in known and others:
        message = f"unknown setting {name!r} in [{own}]: it stands in [{others[0]}]"
        raise InvalidRequest(message)
    check_names([name], known, "setting", f"in [{own}]")


def _made(setting: Setting, value: Any) -> object:
    if isinstance(setting.type, type) and issubclass(setting.type, Enum):
        return setting.type(value)
    return tuple(value) if isinstance(value, list) else value


def read_row(item: object, declared: type[D], deeper: Collection[str] = ()) -> D:
    """Read one row of a list of tables.

    Args:
        item: What stands in the list.
        declared: The class that declares the row.
        deeper: Names that belong into the row's `arguments`.

    Raises:
        InvalidRequest: It is no such row; the message does not name the file.
    """
    known, place = settings_of(declared), declared.PLACE
    rows = item if isinstance(item, Mapping) else {}
    for name, value in rows.items():
        if name in deeper and name not in known and "arguments" in known:
            message = f"{place} {name} belongs into arguments = {{{name} = …}}"
            raise InvalidRequest(message)
        check_names([name], known, "key", f"of {place.rstrip(':')}")
        if not known[name].bounds.is_needed or isinstance(value, str):
            check_value(known[name], value, place)
    for name, setting in known.items():
        if setting.bounds.is_needed and not (isinstance(rows.get(name), str) and rows[name]):
            message = f'{place} {item!r} needs {name} = "…"'
            raise InvalidRequest(message)
    if not isinstance(item, Mapping):
        message = f"{place} {item!r} is no table: say {{{next(iter(known))} = …}} of each"
        raise InvalidRequest(message)
    return declared(**{name: _made(known[name], value) for name, value in rows.items()})


def _line_of(text: str, place: Collection[str]) -> int | None:
    """Return the line at which a setting begins: where the file up to there first has it."""
    if not place:
        return None
    lines, begin = text.split("\n"), 0
    for end in range(1, min(len(lines), _MOST_LINES) + 1):
        try:
            value: Any = _parsed("\n".join(lines[:end]))
        except InvalidRequest:
            continue  # in the midst of a value of several lines
        for name in place:
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            return begin + 1
        begin = end
    return None


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


def check_names(names: Iterable[str], known: Collection[str], what: str, where: str = "") -> None:
    """Refuse names that are no settings.

    Args:
        names: The names that somebody wrote.
        known: The names there are.
        what: What they are names of, for the message.
        where: Where they were written, for the message; may be empty.

    Raises:
        InvalidRequest: The first unknown name, and the nearest that there is.
    """
    for name in names:
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
