"""Notebooks are committed without outputs: those are made by the tests and by readers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.architecture.source import TOP, tracked_files


def has_outputs(path: Path) -> bool:
    cells = json.loads((TOP / path).read_text())["cells"]
    return any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


def test_notebooks_are_committed_without_outputs() -> None:
    notebooks = [path for path in tracked_files() if path.suffix == ".ipynb"]
    assert [str(path) for path in notebooks if has_outputs(path)] == []
