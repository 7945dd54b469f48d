"""LIKE: `%` is any characters, `_` is one (JMS 2.0 section 3.8.1.2). Pure.

Each part between two `%` is looked for once, at its leftmost place, and never again (an atomic
group): leftmost is always as good as any later place, and without that a pattern such as
`%a%a%a%a%a%b` would take time with the fifth power of the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_PATTERN = 1_000
"""Characters of a pattern: to compile and to match takes time in proportion, on the loop."""
_ANY = None
"""Stands for `%` between the parts of a pattern."""


def compile_like(pattern: str, escape: str | None) -> re.Pattern[str]:
    """A regular expression whose `fullmatch` decides, in time text × pattern at most.

    Raises:
        ValueError: The escape is not one character, or the pattern ends with it, or is too long.
    """
    if len(pattern) > MAX_PATTERN:
        message = f"a pattern of {len(pattern)} characters, {MAX_PATTERN} at most"
        raise ValueError(message)
    if escape is not None and len(escape) != 1:
        raise ValueError("ESCAPE takes one character")
    parts: list[list[str]] = [[]]
    for piece in _pieces(pattern, escape):
        if piece is _ANY:
            parts.append([])
        else:
            parts[-1].append(piece)
    first, *rest = ["".join(part) for part in parts]
    if not rest:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def _pieces(pattern: str, escape: str | None) -> Iterator[str | None]:
    """Regular expressions of single characters, and `_ANY`."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise ValueError("the pattern ends with its ESCAPE character")
            yield re.escape(literal)
        elif character == "%":
            yield _ANY
        else:
            yield "." if character == "_" else re.escape(character)
