"""LIKE: `%` is any characters, `_` is one (JMS 2.0 section 3.8.1.2). Pure.

Each part between two `%` is looked for once, at its leftmost place, and never again. Leftmost is
always as good as any later place, and without that a pattern such as `%a%a%a%a%a%b` would take time
with the fifth power of the text's length. What stands before the first `%` and after the last one
is compared at one place.

A part of plain characters is looked for as Python does it, in time with the length of the text or,
where a short part is made for that, text × part. One with `_` takes text × part, by a regular
expression, whose step is some eight times as slow. So its characters count eight times in the
pattern's `work`, which a selector has a limit of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_PATTERN = 1_000
"""Characters of a pattern: to compile and to match takes time in proportion, on the loop."""
MAX_TEXT = 4_096
"""Characters of a text that patterns are held against."""
_WILD_WORK = 8
_ANY = None
"""Stands for `%` between the parts of a pattern."""


class Pattern(NamedTuple):
    """A pattern of `LIKE`, compiled.

    Attributes:
        first: What it starts with; all of it if there is no `last`.
        middle: What comes then, in this order, with anything between.
        last: What it ends with; None if the pattern has no `%`.
        work: Work of matching, for each character of the text.
    """

    first: _Part
    middle: tuple[_Part, ...]
    last: _Part | None
    work: int

    def fits(self, text: str) -> bool:
        """True if the text is like this, all of it."""
        first, middle, last, _work = self
        at, end = first.size, len(text)
        if last is None:
            return at == end and first.is_at(text, 0)
        end -= last.size
        if end < at or not (first.is_at(text, 0) and last.is_at(text, end)):
            return False
        for part in middle:
            place = part.find(text, at, end)
            if place < 0:
                return False
            at = place + part.size
        return True


class _Part(NamedTuple):
    """A part of a pattern of LIKE that has no `%`.

    Attributes:
        plain: They, if there is no `_` among them.
        wild: Else a regular expression of as many characters.
        size: How many they are.
    """

    plain: str
    wild: re.Pattern[str] | None
    size: int

    @property
    def work(self) -> int:
        """Return the work of a search for this part, for each character of the text."""
        return self.size if self.wild is None else _WILD_WORK * self.size

    def is_at(self, text: str, at: int) -> bool:
        """True if the text has it at this place."""
        if self.wild is None:
            return text.startswith(self.plain, at)
        return self.wild.match(text, at) is not None

    def find(self, text: str, start: int, end: int) -> int:
        """Return where the text first has this part between two places; -1 if it has not."""
        if self.wild is None:
            return text.find(self.plain, start, end)
        match = self.wild.search(text, start, end)
        return -1 if match is None else match.start()


def compile_like(pattern: str, escape: str | None) -> Pattern:
    """Compile the pattern of a `LIKE`.

    Raises:
        ValueError: The escape is not one character, or the pattern ends with it, or is too long.
    """
    if len(pattern) > MAX_PATTERN:
        message = f"a pattern of {len(pattern)} characters, {MAX_PATTERN} at most"
        raise ValueError(message)
    if escape is not None and len(escape) != 1:
        raise ValueError("ESCAPE takes one character")
    pieces: list[list[tuple[str, bool]]] = [[]]
    for piece in _pieces(pattern, escape):
        if piece is _ANY:
            pieces.append([])
        else:
            pieces[-1].append(piece)
    first, *rest = map(_part, pieces)
    middle = tuple(part for part in rest[:-1] if part.size)
    return Pattern(first, middle, rest[-1] if rest else None, sum(part.work for part in middle))


def _part(pieces: list[tuple[str, bool]]) -> _Part:
    if all(is_plain for _character, is_plain in pieces):
        return _Part("".join(character for character, _ in pieces), None, len(pieces))
    wild = "".join(re.escape(character) if is_plain else "." for character, is_plain in pieces)
    return _Part("", re.compile(wild, re.DOTALL), len(pieces))


def _pieces(pattern: str, escape: str | None) -> Iterator[tuple[str, bool] | None]:
    """Characters, each with whether it stands for itself, and `_ANY`."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise ValueError("the pattern ends with its ESCAPE character")
            yield literal, True
        elif character == "%":
            yield _ANY
        else:
            yield character, character != "_"
