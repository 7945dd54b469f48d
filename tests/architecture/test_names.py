"""A class name means one thing in the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.architecture.source import is_product, modules, tree


def names_used_twice(trees: Iterable[tuple[Path, ast.Module]]) -> dict[str, list[str]]:
    """Class names that several places define, with those places."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, module in trees:
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path))
    return {name: found for name, found in places.items() if len(found) > 1}


def test_a_class_name_is_used_once_in_the_product() -> None:
    # No exception but generated code, which `modules` leaves out: where a protocol's word is
    # taken (Session, Connection, Message), ours gets a prefix.
    product = [(path, tree(path)) for path in modules() if is_product(path)]
    assert names_used_twice(product) == {}


def test_a_class_inside_another_or_in_the_same_module_counts() -> None:
    text = "class Step: pass\nclass Plan:\n    class Step: pass\n"
    found = names_used_twice([(Path("a.py"), ast.parse(text))])
    assert found == {"Step": ["a.py", "a.py"]}
