"""First lines of docstrings, and descriptions in them, are clauses that a stranger can follow.

STYLE: a first line says what a thing does or is to a person who has not read the code below. So it
has four words or more, and begins with a verb or a noun of the field.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.architecture.source import is_product, modules, tree

NAMED = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LEAST_FIRST_WORDS = 4
NO_BEGINNING = {"As", "It", "Of", "See", "What", "Who"}
"""A line that begins with one of them is a clause of another sentence, which is not there."""
CEILINGS: dict[str, int] = {}
"""First lines that are not mended yet, by package. A number only falls: lower it with each mend."""

DESCRIPTION = re.compile(r"(\w+): ([A-Z].*)")
LEAST_WORDS = 3


def riddles(docstring: str) -> list[str]:
    """The descriptions in a docstring that are of one or two words, as "message_id: Which."."""
    lines = docstring.splitlines()
    return [
        line.strip()
        for line, following in pairwise([*lines, ""])
        if line.startswith("    ")
        and (found := DESCRIPTION.fullmatch(line.strip()))
        and len(found[2].split()) < LEAST_WORDS
        and not following.startswith(" " * (len(line) - len(line.lstrip()) + 1))
    ]


def test_no_description_is_a_riddle() -> None:
    found = {
        f"{path}: {riddle}"
        for path in modules()
        if is_product(path)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module)
        for riddle in riddles(ast.get_docstring(node) or "")
    }
    assert found == set()


def test_a_description_of_two_words_is_a_riddle_and_one_that_goes_on_is_none() -> None:
    text = (
        "Do it.\n\nArgs:\n    a: Which one.\n    b: The\n        queue.\n    c: Any name will do."
    )
    assert riddles(text) == ["a: Which one."]


def reason_weak(first_line: str) -> str | None:
    """Tell why a first line does not stand alone; None if it does."""
    words = re.findall(r"[\w`'.-]+", first_line)
    if len(words) < LEAST_FIRST_WORDS:
        return f"has {len(words)} words"
    return f"begins with {words[0]}" if words[0] in NO_BEGINNING else None


def first_lines(path: Path) -> Iterator[str]:
    """Yield the first line of each public docstring of a module."""
    for node in ast.walk(tree(path)):
        is_public = isinstance(node, ast.Module) or (
            isinstance(node, NAMED) and not node.name.startswith("_")
        )
        if is_public and (docstring := ast.get_docstring(node)):
            yield docstring.splitlines()[0]


def package_of(path: Path) -> str:
    """Return the package of a module that has a ceiling of its own: one below the top, at most."""
    return "/".join(path.parts[:-1][:2])


def weak_first_lines() -> dict[str, list[str]]:
    """Return, by package, the first lines that do not stand alone, each with the reason."""
    found: dict[str, list[str]] = {}
    for path in modules():
        if not is_product(path):
            continue
        for line in first_lines(path):
            if reason := reason_weak(line):
                found.setdefault(package_of(path), []).append(f"{path}: {line} ({reason})")
    return found


def test_a_first_line_is_understood_without_the_code() -> None:
    found = weak_first_lines()
    too_many = {
        package: lines for package, lines in found.items() if len(lines) > CEILINGS.get(package, 0)
    }
    assert too_many == {}


def test_a_ceiling_names_a_package_that_is_there() -> None:
    packages = Counter(package_of(path) for path in modules())
    assert {package for package in CEILINGS if not packages[package]} == set()


@pytest.mark.parametrize(
    "line",
    [
        "The message.",
        "Once.",
        "Of a connection that was lost.",
        "As the module says it.",
        "What a store has of it.",
        "Who holds a message now.",
        "It is durable, or refused.",
        "See `AdminClient.run` for that.",
    ],
)
def test_a_first_line_that_needs_the_code_is_weak(line: str) -> None:
    assert reason_weak(line) is not None


@pytest.mark.parametrize("line", ["The number of termini.", "Release what a lost consumer held."])
def test_a_first_line_with_a_noun_or_a_verb_is_not_weak(line: str) -> None:
    assert reason_weak(line) is None
