"""Word the refusals of models for people: which field, what it should be, and what came."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

_REFUSAL = re.compile(r"Expected (?P<expected>.+?)(?:, got `\w+`)?(?: - at `\$(?P<path>.*)`)?")
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+)\]")
_MOST_SHOWN = 80


def refused_value(reason: msgspec.ValidationError, content: Any, what: str) -> str:
    """Say what is wrong, with the value that came.

    Args:
        reason: As msgspec has it: of a refusal that is none of a value's type or bounds its words
            are kept, which name the field.
        content: What was read: the whole query or body.
        what: What a value of it is called: a field, or a query parameter.
    """
    refusal = _REFUSAL.fullmatch(str(reason))
    if refusal is None:
        return str(reason)
    path, value = refusal["path"] or "", content
    for step in _STEP.finditer(path):
        value = value[step["name"] if step["index"] is None else int(step["index"])]
    subject = f"{what} '{path.removeprefix('.')}'" if path else "the body"
    came = (
        "" if "[...]" in path else f", not {json.dumps(value, ensure_ascii=False):.{_MOST_SHOWN}}"
    )
    return f"{subject} should be {_in_words(refusal['expected'])}{came}"


_WORDS = {
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
"""Types as JSON's reader knows them."""


def _in_words(expected: str) -> str:
    types, _, bounds = expected.removeprefix("`").partition("`")
    words = " or ".join(_WORDS.get(name, name) for name in types.split(" | "))
    bounds = bounds.replace(" of length >=", " with a length of at least")
    bounds = bounds.replace(" of length <=", " with a length of at most")
    return words + bounds.replace(" >=", " of at least").replace(" <=", " of at most")
