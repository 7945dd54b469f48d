"""Who may import whom (ARCHITECTURE: Layers), and what nobody may import."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source import TOP, modules, tree

PRODUCT = ("sparkstore", "broker_shim", "pyspark_sparkstore")
PICKLES = {"pickle", "cloudpickle", "dill", "shelve", "marshal"}


def imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.slow
def test_the_import_contracts_are_kept() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [lint_imports, "--no-cache"], cwd=TOP, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def names_of_modules(path: Path) -> Iterator[str]:
    """Names that a module may import as modules: also those of `from package import module`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def has_main(path: Path) -> bool:
    """Whether a module is a program: it ends by calling itself, as `python -m` wants it."""
    last = tree(path).body[-1]
    return isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'"


def test_each_module_of_the_product_has_a_user_in_the_product() -> None:
    """What only tests import is no part of the product; a program is its own user."""
    product = [path for path in modules() if path.parts[0] in PRODUCT]
    imported = {name for path in product for name in names_of_modules(path)}
    declared = (TOP / "pyproject.toml").read_text()
    unused = [
        name
        for path in product
        if path.stem not in {"__init__", "__main__"}
        and (name := ".".join(path.with_suffix("").parts)) not in imported
        and f'"{name}:' not in declared
        and not has_main(path)
    ]
    assert unused == []


def test_nothing_here_pickles() -> None:
    """What is read back from disk or a socket must not be able to run code."""
    found = {
        str(path): name
        for path in modules()
        for name in imported_names(path)
        if name.split(".")[0] in PICKLES
    }
    assert found == {}


@pytest.mark.parametrize(
    "module",
    [
        "sparkstore.cli.command_line",
        "sparkstore.tables.root",
        "sparkstore.tables.rows",
        "broker_shim.store.interface",
    ],
)
@pytest.mark.slow
def test_importing_it_loads_no_spark(module: str) -> None:
    """Import contracts see code; this sees what really happens when a broker starts."""
    look = f"import sys, {module}; print({{'pyspark', 'delta', 'py4j'}} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", look], cwd=TOP, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"


@pytest.mark.slow
def test_a_broker_that_has_no_root_of_its_own_loads_no_arrow() -> None:
    look = "import sys, broker_shim.serve.command, broker_shim.store.remote.remote_store;"
    look += " print({'pyarrow', 'deltalake', 'numpy'} & set(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", look], cwd=TOP, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "set()"
