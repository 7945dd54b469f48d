"""The notebook of the disaster drill runs, with both of its jobs.

It is apart from the other notebooks, because the jobs start Spark.
"""

from __future__ import annotations

import pytest

from tests.support.notebooks import run_notebook


@pytest.mark.slow
def test_drill_loses_what_came_after_the_last_replicate_and_nothing_else() -> None:
    shown = run_notebook("drill")
    assert f"{[*range(20), *range(100, 105)]}" in shown
    assert f"lost: {[*range(20, 30)]}" in shown
    assert "errors            0\n" in shown
