"""Run a notebook of this checkout in a kernel, as a reader does."""

from __future__ import annotations

import os
import warnings

import nbformat
from nbclient import NotebookClient

from tests.support.checkout import CHECKOUT

FOLDER = CHECKOUT / "notebooks"


def run_notebook(*names: str) -> str:
    """Run all cells of notebooks in one kernel, and so in one JVM, in this process's environment.

    Args:
        names: The notebooks, in the order in which they run.

    Returns:
        What they printed and showed; of a picture its media type.

    Raises:
        CellExecutionError: A cell failed.
    """
    notebook, *others = [_read(name) for name in names]
    notebook.cells.extend(cell for other in others for cell in other.cells)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([f"{CHECKOUT}", before or ""])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nbclient's own: event loops, zmq
            NotebookClient(notebook, timeout=600).execute()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(_shown(output) for output in outputs)


def _read(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]


def _shown(output: nbformat.NotebookNode) -> str:
    data = output.get("data", {})
    return output.get("text") or "\n".join([*data, data.get("text/plain", "")])
