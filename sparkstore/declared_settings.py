"""Settings as they are declared: each stands once, and all that is made of settings follows. Pure.

A dataclass declares a table of settings: its fields are their names, types and defaults, `Bounds`
says what they may be, and the docstring what they are for. From that the settings file is read and
checked (`sparkstore.settings_file`), options are added to a command line, and
`broker_shim.settings_documents` writes `conf/sparkstore.toml` and the tables of the documents.

Decision: neither msgspec nor pydantic reads the file. Their errors lack the nearest name, the file
and the line (and msgspec's the value), so each would have to be taken apart and said anew.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from sparkstore.errors import InvalidRequest

MIB = 1 << 20
_KINDS = {bool: "true or false", int: "a whole number", float: "a number"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bound what a setting may be, beside its type.

    Attributes:
        least: The least number.
        most: The largest number.
        words: The texts there are; with an empty one, the setting may be left out.
        metavar: Value of the option of `sparkstore serve` that has the setting's name; empty: there
            is no such option.
        is_needed: A row must have it.
        is_read: False: no file has it; the program sets it.
    """

    least: float = -math.inf
    most: float = math.inf
    words: tuple[str, ...] = ()
    metavar: str = ""
    is_needed: bool = False
    is_read: bool = True


AtLeast0 = Annotated[int, Bounds(0)]
AtLeast1 = Annotated[int, Bounds(1)]
Seconds = Annotated[float, Bounds(0)]
NotRead = Bounds(is_read=False)
_NO_BOUNDS = Bounds()


class Setting(NamedTuple):
    """A setting as its class declares it.

    Attributes:
        name: Name of the field and in the file.
        type: Of a value; an enumeration's is made of a text.
        default: Its value where nobody says another.
        bounds: What it may be.
        is_texts: Whether it is a list of texts.
    """

    name: str
    type: Any
    default: Any
    bounds: Bounds
    is_texts: bool


@cache
def settings_of(declared: type) -> dict[str, Setting]:
    """Return the settings that a dataclass declares, by name and in order."""
    hints, settings = get_type_hints(declared, include_extras=True), {}
    for field in fields(declared):
        hint, bounds = hints[field.name], _NO_BOUNDS
        if get_origin(hint) is Annotated:
            hint, bounds = get_args(hint)[:2]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        plain = get_args(hint)[0] if type(None) in get_args(hint) else get_origin(hint) or hint
        if bounds.is_read:
            is_texts = hint == tuple[str, ...]
            settings[field.name] = Setting(field.name, plain, default, bounds, is_texts)
    return settings


def check_declared(values: object, place: str) -> None:
    """Check every setting of an instance of a class that declares them.

    Raises:
        InvalidRequest: One has another type than its own, or is out of its bounds.
    """
    declared: Any = type(values)
    for name, setting in settings_of(declared).items():
        check_value(setting, getattr(values, name), place)


def check_value(setting: Setting, value: object, place: str) -> None:
    """Check a value against what is declared.

    Args:
        setting: What is declared of it.
        value: What somebody said; a text may be a path where Python code says it.
        place: The table that it stands in, for the message, as `[store]`.

    Raises:
        InvalidRequest: It has another type, or is out of its bounds; says which it may be.
    """
    reason = _why_not(setting, value)
    if reason:
        message = f"{place} {setting.name} {reason}"
        raise InvalidRequest(message)


def _why_not(setting: Setting, value: Any) -> str:
    """Return what is wrong with a value, for a message; empty: nothing."""
    kind = setting.type
    if kind in {tuple, Mapping}:
        return _why_no_collection(setting, value)
    if value is None and setting.default is None:
        return ""
    if not issubclass(kind, str):
        return _why_no_number(setting, value)
    if not isinstance(value, str | Path):
        return f"is {value!r}: say a text"
    words = setting.bounds.words or (tuple(kind) if issubclass(kind, Enum) else ())
    return f"is {value!r}: {_one_of(words)}" if words and value not in words else ""


def _why_no_number(setting: Setting, value: Any) -> str:
    bounds, kind = setting.bounds, setting.type
    if type(value) is not kind and not (kind is float and type(value) is int):
        return f"is {value!r}: say {_KINDS[kind]}"
    if bounds.least <= value <= bounds.most:  # not-a-number is not, either
        return ""
    if bounds.most == math.inf:
        return f"is {value}: it must be at least {bounds.least}"
    return f"is {value}: from {bounds.least} to {bounds.most}"


def _why_no_collection(setting: Setting, value: Any) -> str:
    if setting.type is Mapping:
        return "" if isinstance(value, Mapping) else "must be a table"
    if not isinstance(value, list | tuple):
        return "must be a list"
    if setting.is_texts:
        if not all(isinstance(text, str) for text in value):
            return "must be a list of texts"
        if setting.bounds.words and (unknown := set(value) - set(setting.bounds.words)):
            return f"has {min(unknown)!r}: say some of {', '.join(setting.bounds.words)}"
    return ""


def _one_of(words: tuple[str, ...]) -> str:
    advice = f"say one of {', '.join(filter(None, words))}"
    return f"{advice}, or leave it out" if "" in words else advice


def texts_of(declared: type) -> tuple[list[str], dict[str, list[str]]]:
    """Return what a class that declares settings says of them all, and of each: its docstring.

    A text is a list of paragraphs. One that begins with a space is an example: it keeps its lines.
    """
    head, _, rest = inspect.cleandoc(declared.__doc__ or "").partition("\nAttributes:\n")
    texts = {}
    for part in re.split(r"^ {4}(?=\w)", rest, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition(": ")
        texts[name] = _paragraphs(re.sub(r"^ {8}", "", text, flags=re.MULTILINE))
    return _paragraphs(head), texts


def _paragraphs(text: str) -> list[str]:
    paragraphs = []
    for block in re.split(r"\n\s*\n", text.strip("\n ")):
        is_example = block.startswith(" ")
        paragraphs.append(block.rstrip() if is_example else " ".join(block.split()))
    return paragraphs
