"""A description of an argument, an attribute or an error is a clause that a stranger can follow."""

from __future__ import annotations

import ast
import re
from itertools import pairwise

from tests.architecture.source import modules, tree

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
        if path.parts[0] != "tests"
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
