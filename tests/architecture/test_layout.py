"""Where tests lie: as the packages do, what they share beside them, none imported by another."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.source import TOP, modules, tree

TESTS = [path for path in modules() if path.parts[0] == "tests"]
UNIT = Path("tests/unit")
FOLDERS = {"unit", "contract", "properties", "spark", "system"}
SHARED = {"__init__.py", "proton_client.py", "proton_failover.py"}  # programs that are run


def imported(path: Path) -> set[str]:
    """The modules that a file names in its imports, `from x import y` as x and as x.y."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_no_test_module_is_imported() -> None:
    """Nor a conftest: what two of them need is in `tests/support`."""
    runs = {".".join(path.with_suffix("").parts) for path in TESTS if is_run(path)}
    assert {str(path): found for path in TESTS if (found := imported(path) & runs)} == {}


def is_run(path: Path) -> bool:
    """Pytest finds it by its name."""
    return path.name.startswith("test_") or path.name == "conftest.py"


def test_helpers_are_in_the_folder_for_them() -> None:
    folders = {
        Path("tests") / name for name in ("unit", "contract", "properties", "spark", "system")
    }
    helpers = [
        str(path)
        for path in TESTS
        if folders & {*path.parents} and not is_run(path) and path.name not in SHARED
    ]
    assert helpers == []


def test_each_folder_of_unit_tests_is_a_folder_of_a_package() -> None:
    folders = {path.parent.relative_to(UNIT) for path in TESTS if UNIT in path.parents}
    lone = {str(folder) for folder in folders if not (TOP / folder).is_dir()}
    assert lone == set()
