"""What an environment lacks that has the wheel alone."""

from __future__ import annotations

import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.checkout import CHECKOUT


def bare_program(program: str) -> str:
    """Let a program run as in an environment that has the wheel and its dependencies alone."""
    return f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{*{_beyond_the_wheel()}}}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
{program}
"""


def _beyond_the_wheel() -> list[str]:
    """Name the installed modules that come neither with the wheel nor with what it depends on."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    waiting, wheel = [Requirement(each) for each in project["dependencies"]], {"sparkstore"}
    while waiting:
        if (name := canonicalize_name(waiting.pop().name)) not in wheel:
            wheel.add(name)
            needed = map(Requirement, metadata.requires(name) or ())
            waiting += (e for e in needed if e.marker is None or e.marker.evaluate({"extra": ""}))
    return [
        module
        for module, owners in metadata.packages_distributions().items()
        if wheel.isdisjoint(map(canonicalize_name, owners))
    ]
