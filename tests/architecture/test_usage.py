"""What the product defines, the product uses: code that only tests call is a promise to nobody.

It is looked up by name, so a name that means several things hides an unused one. What it finds is
unused for certain, but for the names that somebody else calls, below.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.architecture.source import is_product, modules, tree

CALLED_FROM_OUTSIDE = {
    "AssemblyAddOn": "handlers that users write extend it: docs/amqp-0-10.md",
    "BOUNDARIES": "the steps of a job, at each of which tests kill it",
    "DECODER": "an entry point in pyproject.toml leads to it",
    "FrameAddOn": "handlers that users write extend it: docs/amqp-0-10.md",
    "IN_VAIN": "conf/systemd has these codes as text, and a test compares the two",
    "acquire_each": "programs of users that have a store: docs/store-interface.md",
    "enqueue_each": "as `acquire_each`",
    "find_spec": "Python's import system asks it, as of any finder",
    "release_each": "as `acquire_each`",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def uses(node: ast.AST) -> Counter[str]:
    """How often each name is read below a node: as a name, an attribute or the word of a string.

    A string of one word may name a method (`getattr`, `attrgetter`), or a type that comes later.
    """
    found: Counter[str] = Counter()
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            found[each.id] += 1
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load):
            found[each.attr] += 1
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            found[each.value] += each.value.isidentifier()
    return found


def definitions(code: ast.Module) -> Iterable[tuple[str, ast.AST]]:
    """The functions, classes, methods and constants of a module, each with its name."""
    for node in code.body:
        if isinstance(node, ast.Assign):
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
            yield from ((name, node) for name in names)
        elif isinstance(node, Function | ast.ClassDef):
            yield node.name, node
    for node in ast.walk(code):
        if isinstance(node, ast.ClassDef):
            yield from ((each.name, each) for each in node.body if isinstance(each, Function))


def unused(code: Mapping[Path, ast.Module], called_by_libraries: set[str]) -> set[str]:
    """Names that nothing reads but their own definition."""
    read: Counter[str] = Counter()
    for each in code.values():
        read.update(uses(each))
    return {
        f"{path}: {name}"
        for path, module in code.items()
        for name, node in definitions(module)
        if read[name] <= uses(node)[name] and not name.startswith("__")
        if name not in called_by_libraries
    }


def methods_of_library_classes(code: Iterable[ast.Module]) -> set[str]:
    """Methods of classes that extend one of a library, which may call them."""
    classes = [each for one in code for each in ast.walk(one) if isinstance(each, ast.ClassDef)]
    ours = {each.name: each for each in classes}

    def extends_a_library(each: ast.ClassDef) -> bool:
        bases = [ast.unparse(base).split("[")[0] for base in each.bases]
        known = {"Protocol", "NamedTuple", "Exception", "Generic"}
        return any(
            extends_a_library(ours[base]) if base in ours else base not in known for base in bases
        )

    return {
        method.name
        for each in classes
        if extends_a_library(each)
        for method in each.body
        if isinstance(method, Function)
    }


def product() -> dict[Path, ast.Module]:
    return {path: tree(path) for path in modules() if is_product(path)}


def test_what_the_product_defines_the_product_uses() -> None:
    code = product()
    found = unused(code, methods_of_library_classes(code.values()) | {*CALLED_FROM_OUTSIDE})
    assert found == set()


def test_what_is_called_from_outside_is_there() -> None:
    there = {name for module in product().values() for name, _node in definitions(module)}
    assert {*CALLED_FROM_OUTSIDE} <= there


def test_a_function_that_only_calls_itself_is_unused_and_one_named_in_a_string_is_used() -> None:
    text = """
LIMIT = 3
SPARE = 4

class Look:
    def used(self): return LIMIT
    def spare(self): return self.spare()

def found(x): return x.used() and getattr(x, "by_name") and found(x)
def by_name(): return Look
"""
    code = {Path("a.py"): ast.parse(text)}
    assert unused(code, set()) == {"a.py: SPARE", "a.py: spare", "a.py: found"}


def test_a_method_that_a_library_calls_is_one_of_a_class_that_extends_the_librarys() -> None:
    text = """
class Ours(asyncio.Protocol):
    def data_received(self): ...

class Mine(Ours):
    def eof_received(self): ...

class Plain:
    def data(self): ...
"""
    assert methods_of_library_classes([ast.parse(text)]) == {"data_received", "eof_received"}
