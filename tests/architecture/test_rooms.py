"""The rooms of the product: small folders, no import cycle, modules named by nouns.

Parts of one room may name each other's classes in annotations (`TYPE_CHECKING`). So what two of
them are to one another is the class itself, and no protocol that repeats it. No module of a room
is so bound to one of another.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.architecture.source import modules, tree

MAX_MODULES = 16
PRODUCT = {"sparkstore", "broker_shim", "pyspark_sparkstore"}

# Words that end like a gerund or a participle, or are one, and stay: with the reason.
ALLOWED_NAMES = {
    "broker_shim.broker.wiring.routing": "a noun of the field: which queues a message goes to",
    "broker_shim.protocol_1_0.greeting": "a noun: what is said before the first frame",
    "broker_shim.selectors.matching": "a noun of the field: pattern matching (LIKE)",
    "broker_shim.serve.reporting": "a noun: the reporting of a process's figures",
    "broker_shim.store.remote.greeting": "a noun: what is said before the first call",
    "sparkstore.core.state_machine.wiring": "a noun: exchanges, queues and bindings together",
    "broker_shim.transactions.standing": "a noun: what a transaction may still do",
    "sparkstore.cli.parsing": "a noun of the field: what parsers of commands have in common",
    "sparkstore.log.tuning": "a noun: settings of a process",
    "sparkstore.tables.fencing": "a noun of the field: keeping out a writer who was replaced",
    "sparkstore.tables.healing": "a noun: setting aside what a power cut broke",
}
# Those that the endings do not show.
IRREGULAR_PARTICIPLES = {
    *("brought", "done", "given", "gone", "held", "kept", "known", "left", "lost", "made"),
    *("read", "seen", "sent", "set", "shown", "taken", "told", "written"),
}


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def product_modules() -> dict[str, Path]:
    return {module_name(path): path for path in modules() if path.parts[0] in PRODUCT}


def imported_modules(
    code: ast.Module, among: Iterable[str], *, as_it_runs: bool = False
) -> set[str]:
    """Modules among those given that the code imports: anywhere, or when it runs."""
    found = set()
    blocks = [node for node in code.body if as_it_runs and is_for_types(node)]
    unseen = {node for block in blocks for node in ast.walk(block)}
    for node in (node for node in ast.walk(code) if node not in unseen):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            whole = str(node.module)
            inner = {f"{whole}.{name.name}" for name in node.names}
            found |= inner & set(among) or {whole}
    return found & set(among)


def is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


@cache
def imports(*, as_it_runs: bool = False) -> dict[str, set[str]]:
    """Whom each module of the product imports: anywhere, or when it runs."""
    paths = product_modules()
    return {
        name: imported_modules(tree(path), paths, as_it_runs=as_it_runs) - {name}
        for name, path in paths.items()
    }


def reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def knots(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules each of which imports all the others, directly or by way of others."""
    reach = {name: reachable(name, graph) for name in graph}
    groups = {
        frozenset(other for other in reach[name] if name in reach[other]) | {name} for name in graph
    }
    return {group for group in groups if len(group) > 1}


def test_a_folder_has_at_most_16_modules() -> None:
    written = (path for path in product_modules().values() if path.stem != "__init__")
    sizes = Counter(str(path.parent) for path in written)
    assert sizes
    assert {folder: n for folder, n in sizes.items() if n > MAX_MODULES} == {}


def test_no_module_is_in_an_import_cycle() -> None:
    assert [sorted(knot) for knot in knots(imports(as_it_runs=True))] == []


def test_modules_that_name_each_other_in_annotations_are_in_one_room() -> None:
    """A part of a room below that must call back gets a narrow protocol."""
    rooms = [{".".join(name.split(".")[:2]) for name in knot} for knot in knots(imports())]
    assert [room for room in rooms if len(room) > 1] == []


def test_the_product_can_be_sorted_by_its_imports() -> None:
    """Two ways to find cycles agree."""
    try:
        TopologicalSorter(imports(as_it_runs=True)).prepare()
    except CycleError as cycle:
        raise AssertionError(cycle.args[1]) from cycle


def test_an_import_for_type_checking_counts_unless_the_code_runs() -> None:
    lines = ["from typing import TYPE_CHECKING", "if TYPE_CHECKING:", "    from a import b"]
    code = ast.parse("\n".join([*lines, "import c"]))
    assert imported_modules(code, {"a", "a.b", "c"}) == {"a.b", "c"}
    assert imported_modules(code, {"a", "a.b", "c"}, as_it_runs=True) == {"c"}


def test_a_knot_is_found_over_several_modules_and_a_chain_is_none() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert knots(graph) == {frozenset("abc")}


def test_no_module_is_named_by_a_bare_gerund_or_participle() -> None:
    found = set()
    for name, path in product_modules().items():
        if path.stem == "__init__":  # a folder is a room, not a module: addressing, receiving
            continue
        last = name.rsplit(".", 1)[-1]
        bare = "_" not in last and last.endswith(("ing", "ed"))
        if bare or last in IRREGULAR_PARTICIPLES:
            found.add(name)
    assert found == set(ALLOWED_NAMES)
