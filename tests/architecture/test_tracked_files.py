"""Nothing of one machine or one network gets into the repository."""

from __future__ import annotations

import re
from pathlib import Path

from tests.architecture.source import TOP, tracked_files

# Spelt so that this file does not match itself.
REGISTRY_HOST = re.compile(
    r"pypi\.[o]rg|pythonhoste[d]\.org|repo1?\.mave[n]\.|maven\.apach[e]\.org/maven2"
    r"|proxy\.golan[g]\.org|registry\.npmj[s]\.|index\.crate[s]\.io|deb\.debia[n]\.org"
)
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|root|home|Users)/\w")


def text_of(path: Path) -> str:
    try:
        return (TOP / path).read_text()
    except UnicodeDecodeError:
        return ""


def files_that_hold(pattern: re.Pattern[str]) -> dict[str, list[str]]:
    found = {str(path): pattern.findall(text_of(path)) for path in tracked_files()}
    return {path: matches for path, matches in found.items() if matches}


def test_no_file_names_the_host_of_a_package_registry() -> None:
    assert files_that_hold(REGISTRY_HOST) == {}


def test_no_file_holds_a_path_of_one_machine() -> None:
    assert files_that_hold(MACHINE_PATH) == {}


def test_the_patterns_find_what_they_are_for() -> None:
    assert REGISTRY_HOST.search("https://files.pythonhosted" + ".org/x")
    assert MACHINE_PATH.search("see /" + "work/main/x")
    assert not MACHINE_PATH.search("build/work/main")
