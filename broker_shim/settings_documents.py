"""Write `conf/sparkstore.toml` and the tables of `docs/settings.md` from the declared settings.

`python -m broker_shim.generate` does so, after a declaration changed.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from broker_shim import argument_documents
from broker_shim.broker.settings import BrokerSettings
from broker_shim.handlers.add_ons import HandlerSettings
from broker_shim.security.security_settings import SecuritySettings
from sparkstore.config import StoreConfig
from sparkstore.declared_settings import Bounds, Setting, settings_of, texts_of
from sparkstore.storage.access import StorageConfig

TOP = Path(__file__).parents[1]
FILE, PAGE = Path("conf/sparkstore.toml"), Path("docs/settings.md")
DECLARED: tuple[Any, ...] = (
    StoreConfig,
    StorageConfig,
    BrokerSettings,
    SecuritySettings,
    HandlerSettings,
)
_WIDTH = 100
_HEAD = (
    "Settings, each with its default. Used by: sparkstore serve --config conf/sparkstore.toml",
    "Sizes are in bytes, times as the name says (_ms, _s, _hours). A section, a setting, a key or"
    " an argument that does not exist is an error that names the nearest one, and nothing starts.",
    "Written by python -m broker_shim.generate from the declarations of settings: change those.",
)
_UNITS = {"bytes": "bytes", "ms": "ms", "s": "s", "hours": "hours", "percent": "%"}


def main() -> None:
    """Write the settings file and the tables of the page."""
    (TOP / FILE).write_text(settings_file())
    page_path = TOP / PAGE
    page_path.write_text(page(page_path.read_text()))


def settings_file() -> str:
    """Return the text of `conf/sparkstore.toml`."""
    lines = list(_comment(list(_HEAD)))
    for declared in DECLARED:
        head, texts = texts_of(declared)
        lines += ["", *_comment(head), declared.PLACE]
        for name, setting in settings_of(declared).items():
            lines += ["", *_comment(texts[name]), f"{name} = {_literal(setting.default)}"]
    return "\n".join(lines) + "\n"


def _comment(paragraphs: list[str]) -> Iterator[str]:
    for text in paragraphs:
        if text.strip() == "{arguments}":
            yield from argument_documents.comment(_WIDTH)
            continue
        kept = text.startswith(" ")
        lines = text.splitlines() if kept else textwrap.wrap(text, _WIDTH - 2)
        yield from (f"# {line[2:] if kept else line}" for line in lines)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[]"
    if isinstance(value, int):
        return f"{value:_}" if value >= 10_000 else str(value)
    return json.dumps(value)


def page(text: str) -> str:
    """Return the page of settings with its tables as they are declared."""
    for declared in DECLARED:
        begin, end = f"<!-- {declared.PLACE} begins -->", f"<!-- {declared.PLACE} ends -->"
        table = "\n".join([begin, *_table(declared), end])
        pattern = f"{re.escape(begin)}.*{re.escape(end)}"
        text = re.sub(pattern, lambda _, made=table: made, text, flags=re.DOTALL)  # type: ignore[misc]
    return text


def _table(declared: type) -> Iterator[str]:
    yield "| setting | default | may be | what it says |"
    yield "| --- | --- | --- | --- |"
    _, texts = texts_of(declared)
    for name, setting in settings_of(declared).items():
        prose = (line for line in texts[name] if not line.startswith(" "))
        text = " ".join(
            re.sub(r"[^.]*:$", "", line).strip() for line in prose
        )  # no example follows
        option = f" Option `--{name.replace('_', '-')}`." if setting.bounds.metavar else ""
        cells = (f"`{name}`", _default(setting), _may_be(setting), text.strip() + option)
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _default(setting: Setting) -> str:
    unit = _UNITS.get(setting.name.rpartition("_")[2], "")
    if setting.default in {"", ()}:
        return "empty"
    return f"`{_literal(setting.default)}` {unit}".rstrip()


def _may_be(setting: Setting) -> str:
    bounds: Bounds = setting.bounds
    if bounds.words:
        return ", ".join(f"`{word}`" if word else "empty" for word in bounds.words)
    if bounds.most < math.inf:
        return f"{bounds.least:,} to {bounds.most:,}"
    if bounds.least > -math.inf:
        return f"{bounds.least:,} or more"
    return (
        "a list"
        if isinstance(setting.default, tuple)
        else {bool: "true, false", str: "a text"}.get(setting.type, "a number")
    )
