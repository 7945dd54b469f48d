"""A process of its own for a declaration that only one test adds: no other test sees it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.checkout import CHECKOUT


def answers_of(program: str, folder: Path) -> dict[str, Any]:
    """Run a program that defines `answers`, and return what that answers about a folder."""
    words = [sys.executable, "-c", f"{program}\nprint(answers({str(folder)!r}))"]
    done = subprocess.run(
        words, check=False, cwd=CHECKOUT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    values: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return values
