"""Names: that of a class means one thing, that of a value says what the value is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.architecture.source import is_product, modules, tree

NO_NAMES = {"each", "found", "said", "there", "told"}
"""Of `told["queue"]` nobody knows whether it is an answer, a body or a row: say which it is."""
IN_ANSWERS = {("sparkstore/cli/health/diagnosis.py", "found")}
"""Keys of answers that programs read, so they stay: of `sparkstore doctor --json`."""


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


def assigned_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of all that a module binds: values, arguments, functions."""
    for node in ast.walk(module):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                yield node.lineno, name


def test_a_name_says_what_its_value_is() -> None:
    pronouns = [
        f"{path}:{line}: {name}"
        for path in modules()
        if path.parts[0] in {"sparkstore", "broker_shim"}
        for line, name in assigned_names(tree(path))
        if name in NO_NAMES and (str(path), name) not in IN_ANSWERS
    ]
    assert pronouns == []


def test_a_name_is_assigned_in_many_ways() -> None:
    lines = ["def told(said, *, found): pass", "there: int = 1", "rows = [each for each in x]"]
    lines += ["if told := 1: pass", "self.found = 2", "import a as said"]
    lines += ["try: pass", "except E as there: pass", "match x:", "    case [*told]: pass"]
    bound = [name for _line, name in assigned_names(ast.parse("\n".join(lines)))]
    assert sorted(name for name in bound if name in NO_NAMES) == [
        *("each", "found", "found", "said", "said", "there", "there"),
        *("told", "told", "told"),
    ]
